"""Which code of a failure is not torch's: custom passes, backends, lowerings and operators of the
program.

Key insight: such code is the program's own only where the compiler, or code that the compiler made,
called it. What Dynamo traces has no frame of its own, and the code that called the compiler is not
at fault.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.evidence import blamed_exception, fatal_fault, stacks_by_tool
from reprokit.core.judge.stacks.recent_dumps import only_recent
from reprokit.core.records.dumps import Frame
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.operators import is_torch_namespace

_LIBRARIES = frozenset(
    "sympy mpmath networkx jinja2 markupsafe filelock fsspec numpy optree psutil setuptools"
    " pkg_resources typing_extensions functorch torchgen cuda nvidia pybind11".split()
)
"""Packages that torch itself calls: their caller says whose call it was."""
_TYPED = ("<user>", "<stdin>", "<ipython-input", "<cell")
"""Names that Python gives to code that was typed in and is in no file."""
_CALLED_BY_ANYONE = re.compile(r"torch/(fx/(?!experimental/).*|_ops\.py|library\.py|_library/.*)")
"""Torch's interfaces for passes and operators: an error in them is that of the code that calls
them.
"""
_IN_OPERATOR = re.compile(r"Error in op: torch\.ops\.(?P<space>\w+)\.(?P<name>\w+)")
"""What generated code says where an operator's result has another shape or stride than its fake
kernel said.
"""
_ON_FAKE = re.compile(
    r"run FX node with fake tensors: call_\w+ (?P<space>\w+)\.(?P<name>\w+)(?:\.\w+)?\(\*"
)
"""What Dynamo says where an operator raises on fake tensors; the exception itself, and its frames,
are lost.
"""
_OPERATOR = re.compile(r"`(?P<space>\w+)::(?P<name>\w+)`")


@dataclass(frozen=True)
class CodePlace:
    """A line of code that is not torch's."""

    at: str
    """``FILE:LINE``."""
    function: str = ""

    @property
    def package(self) -> str:
        """The installed package that it belongs to; empty for the user's own files."""
        return package_of(self.at)

    @property
    def words(self) -> str:
        """``your own code at FILE:LINE``, or ``NAME (third-party package), at FILE:LINE``."""
        return words_for(self.at)


def package_of(place: str) -> str:
    """The installed third-party package that a ``FILE:LINE`` belongs to; empty for any other
    file.
    """
    file = fr.normalise_file(place.rpartition(":")[0] or place)
    return (
        ""
        if file.startswith(("<", "torch/", "triton/"))
        else file.partition("/")[0].removesuffix(".py")
    )


def words_for(place: str) -> str:
    """Whose code a ``FILE:LINE`` is, as the end of ``the failure is in``."""
    if not place:
        return "your own code"
    name = package_of(place)
    return f"{name} (third-party package), at {place}" if name else f"your own code at {place}"


def is_own(file: str, roots: Sequence[str] = ()) -> bool:
    """Whether a file belongs to the program or to a package that it uses, as opposed to Python,
    torch and reprokit.

    ``roots`` are folders with a ``torch`` outside of ``site-packages``.
    """
    if file.startswith("<") and not file.startswith(_TYPED):
        return False  # made by exec, such as the methods of a dataclass
    normal = fr.normalise_file(file)
    if normal == "<user>":
        normal = next((file.removeprefix(root) for root in roots if file.startswith(root)), normal)
    top = normal.partition("/")[0].removesuffix(".py")
    return normal == "<user>" or not (
        normal.startswith("<") or top in ("torch", "triton") or top in _LIBRARIES
    )


def _roots(frames: Sequence[Frame]) -> list[str]:
    """The folders of the torch whose files are in a stack."""
    named = ((f.file, fr.normalise_file(f.file)) for f in frames)
    return [
        file.removesuffix(normal)
        for file, normal in named
        if normal.startswith("torch/") and normal != file
    ]


def called_by_compiler(frames: Sequence[Frame]) -> CodePlace | None:
    """The code that is not torch's, and in which a stack ends although the compiler called it.

    ``frames`` are innermost first, with the files as the tool gave them. None where the innermost
    frame that says anything is the compiler's, or where nothing of the compiler is further out.
    """
    found: CodePlace | None = None
    roots = _roots(frames)
    for raw, frame in zip(frames, fr.normalise_frames(frames), strict=True):
        if fr.RULES.is_sentinel(frame):
            if found is not None and frame.function.endswith("_fn"):
                continue  # how torch calls the kernel of a custom operator
            return None
        if fr.RULES.is_compiled((frame,)):
            return found
        if found is not None or raw.function == "<torn>":
            continue
        if is_own(raw.file, roots):
            found = CodePlace(f"{raw.file}:{raw.line}", raw.function)
        elif frame.file.startswith("torch/") and not _CALLED_BY_ANYONE.fullmatch(frame.file):
            return None
    return None


def innermost_own(frames: Sequence[Frame]) -> CodePlace | None:
    """The innermost line of a stack that is not Python's, torch's or a library's, with whatever
    caller.
    """
    roots = _roots(frames)
    raw = next((f for f in frames if is_own(f.file, roots)), None)
    return CodePlace(f"{raw.file}:{raw.line}", raw.function) if raw is not None else None


def stack_of(verdict: Verdict, seen: Observation) -> tuple[Frame, ...]:
    """The frames that say where a failure is, innermost first: the root exception's, the fault's,
    or what did not move.
    """
    if verdict.kind in ("hang", "slow-compile"):
        stacks = max(stacks_by_tool(only_recent(seen), is_raw=True).values(), key=len, default=[])
        is_chance = verdict.kind == "slow-compile" and len(stacks) < 2  # it was seen there once
        return () if is_chance else fr.stable_part(stacks)
    if verdict.kind == "crash" or (verdict.kind == "error-in-eager" and seen.raised is None):
        fault = fatal_fault(seen)
        return fault.frames if fault else ()
    raised = seen.raised if verdict.kind == "error-in-eager" else blamed_exception(seen)
    if raised is None:
        return ()
    inward = raised.chain[: raised.chain.index(fr.root_cause(raised)) + 1]
    return next((link.frames for link in reversed(inward) if link.frames), ())


def custom_operator(verdict: Verdict, seen: Observation) -> str:
    """The operator that is not torch's, such as ``mylib::op``, at which the failure is; empty where
    it is at none.
    """
    raised = blamed_exception(seen)
    said = fr.root_cause(raised).message if raised is not None else ""
    told = _IN_OPERATOR.search(said) or _ON_FAKE.search(said)
    if verdict.kind == "wrong-result":
        told = next((m for m in reversed(list(_OPERATOR.finditer(seen.departure)))), None)
    return (
        f"{told['space']}::{told['name']}" if told and not is_torch_namespace(told["space"]) else ""
    )
