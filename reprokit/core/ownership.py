"""Which code of a failure is not torch's: custom passes, backends, lowerings and operators of the program.

Key insight: such code is the program's own only where the compiler, or code that the compiler made, called it. What
Dynamo traces has no frame of its own, and what called the compiler is an innocent caller.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from . import frames as fr
from .records import Frame, Observation, Verdict
from .signature import blamed, fatal, stacks_by_tool

_LIBRARIES = frozenset(
    "sympy mpmath networkx jinja2 markupsafe filelock fsspec numpy optree psutil setuptools pkg_resources typing_extensions"
    " functorch torchgen cuda nvidia pybind11".split()
)
"""Packages that torch itself calls: their caller says whose call it was."""
_CALLED_BY_ANYONE = re.compile(r"torch/(fx/(?!experimental/).*|_ops\.py|library\.py|_library/.*)")
"""Torch's interfaces for passes and operators: an error in there is that of the code that calls them."""
_OF_TORCH = frozenset(
    "aten prim prims rngprims debugprims inductor inductor_prims _inductor_test higher_order quantized _quantized"
    " quantized_decomposed c10d _c10d_functional _c10d_functional_autograd c10d_functional fsdp symm_mem mkl mkldnn onednn"
    " mkldnn_prims profiler streams torch_attn torch _dtensor bucketing device_mesh".split()
)
"""Namespaces of operators that torch has."""
_IN_OPERATOR = re.compile(r"Error in op: torch\.ops\.(?P<space>\w+)\.(?P<name>\w+)")
"""What generated code says where an operator's result has another shape or stride than its fake kernel said."""
_OPERATOR = re.compile(r"`(?P<space>\w+)::(?P<name>\w+)`")


@dataclass(frozen=True)
class Place:
    """A line of code that is not torch's."""

    at: str
    """``FILE:LINE``."""
    function: str = ""

    @property
    def package(self) -> str:
        """The installed package that it belongs to; empty for the user's own files."""
        return package(self.at)

    @property
    def words(self) -> str:
        """``your own code at FILE:LINE``, or ``NAME (third-party package), at FILE:LINE``."""
        return words(self.at)


def package(place: str) -> str:
    """The installed third-party package that a ``FILE:LINE`` belongs to; empty for any other file."""
    file = fr.normalise_file(place.rpartition(":")[0] or place)
    return "" if file.startswith(("<", "torch/", "triton/")) else file.partition("/")[0].removesuffix(".py")


def words(place: str) -> str:
    """Whose code a ``FILE:LINE`` is, as the end of ``the failure is in``."""
    if not place:
        return "your own code"
    name = package(place)
    return f"{name} (third-party package), at {place}" if name else f"your own code at {place}"


def is_own(file: str) -> bool:
    """Whether a file belongs to the program or to a package that it uses, as opposed to Python, torch and reprokit."""
    normal = fr.normalise_file(file)
    if normal == "<user>":
        return True
    return not normal.startswith(("<", "torch/", "triton/")) and package(file) not in _LIBRARIES


def called_by_compiler(frames: Sequence[Frame]) -> Place | None:
    """The code that is not torch's, and in which a stack ends although the compiler called it.

    ``frames`` are innermost first, with the files as the tool gave them. None where the innermost frame that says
    anything is the compiler's, or where nothing of the compiler is further out.
    """
    found: Place | None = None
    for raw, frame in zip(frames, fr.normalise(frames), strict=True):
        if fr.RULES.is_sentinel(frame):
            if found is not None and frame.function.endswith("_fn"):
                continue  # how torch calls the kernel of a custom operator
            return None
        if fr.RULES.is_compiled((frame,)):
            return found
        if found is not None or frame.file.startswith(("<stdlib>", "<frozen>", "<agent>")) or raw.function == "<torn>":
            continue
        if is_own(raw.file):
            found = Place(f"{raw.file}:{raw.line}", raw.function)
        elif package(raw.file) not in _LIBRARIES and not _CALLED_BY_ANYONE.fullmatch(frame.file):
            return None
    return None


def innermost(frames: Sequence[Frame]) -> Place | None:
    """The innermost line of a stack that is not Python's, torch's or a library's, whoever called it."""
    raw = next((f for f in frames if is_own(f.file)), None)
    return Place(f"{raw.file}:{raw.line}", raw.function) if raw is not None else None


def stack_of(verdict: Verdict, seen: Observation) -> tuple[Frame, ...]:
    """The frames that say where a failure is, innermost first: the root exception's, the fault's, or what did not move."""
    if verdict.kind in ("hang", "slow-compile"):
        stacks = max(stacks_by_tool(seen, is_raw=True).values(), key=len, default=[])
        return fr.stable_part(stacks)
    if verdict.kind == "crash" or (verdict.kind == "error-in-eager" and seen.raised is None):
        fault = fatal(seen)
        return fault.frames if fault else ()
    raised = seen.raised if verdict.kind == "error-in-eager" else blamed(seen)
    if raised is None:
        return ()
    inward = raised.chain[: raised.chain.index(fr.root(raised)) + 1]
    return next((link.frames for link in reversed(inward) if link.frames), ())


def custom_operator(verdict: Verdict, seen: Observation) -> str:
    """The operator that is not torch's, such as ``mylib::op``, whose fake kernel disagrees with its real result."""
    raised = blamed(seen)
    told = _IN_OPERATOR.search(fr.root(raised).message) if raised is not None else None
    if verdict.kind == "wrong-result":
        told = _OPERATOR.search(seen.departure)
    return f"{told['space']}::{told['name']}" if told and told["space"] not in _OF_TORCH else ""
