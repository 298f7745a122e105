"""Find code in a failure that is not torch's: custom passes, backends, lowerings and operators of
the program.

Such code is at fault only if the compiler, or compiled code, called it. Code that Dynamo traces has
no frame, and the code that called the compiler is not at fault.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.judge.hangs import task_waits, wait_graph, wait_kinds
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.evidence import blamed_exception, fatal_fault, stacks_by_tool
from reprokit.core.judge.stacks.messages import normalise_message
from reprokit.core.judge.stacks.recent_dumps import only_recent
from reprokit.core.records.dumps import Frame
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.shared.operators import is_torch_namespace

_LIBRARIES = frozenset(
    "sympy mpmath networkx jinja2 markupsafe filelock fsspec numpy optree psutil setuptools"
    " pkg_resources typing_extensions functorch torchgen cuda nvidia pybind11".split()
)
"""Packages that torch itself calls. Their caller decides whose code they belong to."""
_TYPED = ("<user>", "<stdin>", "<ipython-input", "<cell")
"""File names of code that was typed in and is in no file."""
_CALLED_BY_ANYONE = re.compile(r"torch/(fx/(?!experimental/).*|_ops\.py|library\.py|_library/.*)")
"""Torch's interfaces for passes and operators: an error in them belongs to the code that calls
them.
"""
_IN_OPERATOR = re.compile(r"Error in op: torch\.ops\.(?P<space>\w+)\.(?P<name>\w+)")
"""The message of generated code if the result of an operator has a different shape or stride than
the result of its fake kernel.
"""
_ON_FAKE = re.compile(
    r"run FX node with fake tensors: call_\w+ (?P<space>\w+)\.(?P<name>\w+)(?:\.\w+)?\(\*"
)
"""The message of Dynamo if an operator raises on fake tensors. The exception itself, and its
frames, are lost.
"""
_TRACED_STACK = re.compile(r"^(?:from user code|User stack):\n", re.MULTILINE)
_QUOTED_FRAME = re.compile(
    r'^ *File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)', re.MULTILINE
)
"""The code that Dynamo traced, as the message of its exception quotes it."""
_OPERATOR = re.compile(r"`(?P<space>\w+)::(?P<name>\w+)`")
_ANY_TYPE = re.compile(r"(?P<type>[\w.]+)(?:: |$)")
_ERROR = re.compile(r"(?P<type>[\w.]+(?:Error|Exception))(?:: |$)")
"""The type at the start of a description, and further ones, inside those of wrappers."""
MIN_ALIKE = 0.5
"""The likeness of two messages of one type from which they are of one failure."""


@dataclass(frozen=True)
class CodePlace:
    """A line of code that is not torch's."""

    at: str
    """``FILE:LINE``."""
    function: str = ""

    @property
    def package(self) -> str:
        """The installed package that contains it; empty for the user's own files."""
        return package_of(self.at)

    @property
    def words(self) -> str:
        """``your own code at FILE:LINE``, or ``NAME (third-party package), at FILE:LINE``."""
        return owner_in_words(self.at)


def package_of(place: str) -> str:
    """Return the installed third-party package that contains a ``FILE:LINE``; empty for any other
    file.
    """
    file = fr.normalise_file(place.rpartition(":")[0] or place)
    return (
        ""
        if file.startswith(("<", "torch/", "triton/"))
        else file.partition("/")[0].removesuffix(".py")
    )


def owner_in_words(place: str) -> str:
    """Return the owner of a ``FILE:LINE``, as the end of ``the failure is in``."""
    if not place:
        return "your own code"
    name = package_of(place)
    return f"{name} (third-party package), at {place}" if name else f"your own code at {place}"


def is_own(file: str, roots: Sequence[str] = ()) -> bool:
    """Return whether a file belongs to the program or to a package that it uses, and not to Python,
    torch or reprokit.

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
    """Return the folders of the torch whose files are in a stack."""
    named = ((f.file, fr.normalise_file(f.file)) for f in frames)
    return [
        file.removesuffix(normal)
        for file, normal in named
        if normal.startswith("torch/") and normal != file
    ]


def called_by_compiler(frames: Sequence[Frame]) -> CodePlace | None:
    """Return the innermost code of a stack, if it is not torch's and the compiler called it.

    ``frames`` are innermost first, with the files as the tool reported them. None if the innermost
    significant frame is the compiler's, or if no frame of the compiler is further out.
    """
    own: CodePlace | None = None
    roots = _roots(frames)
    for raw, frame in zip(frames, fr.normalise_frames(frames), strict=True):
        if fr.RULES.is_sentinel(frame):
            if own is not None and frame.function.endswith("_fn"):
                continue  # torch calls the kernel of a custom operator through it
            return None
        if fr.RULES.is_compiled((frame,)):
            return own
        if own is not None or raw.function == "<torn>":
            continue
        if is_own(raw.file, roots):
            own = CodePlace(f"{raw.file}:{raw.line}", raw.function)
        elif frame.file.startswith("torch/") and not _CALLED_BY_ANYONE.fullmatch(frame.file):
            return None
    return None


def innermost_own(frames: Sequence[Frame]) -> CodePlace | None:
    """Return the innermost line of a stack that is not in Python, torch or one of torch's
    libraries.
    """
    raw = next(iter(own_frames(frames)), None)
    return CodePlace(f"{raw.file}:{raw.line}", raw.function) if raw is not None else None


def own_frames(frames: Sequence[Frame]) -> list[Frame]:
    """Return the frames that are not in Python, torch or one of torch's libraries."""
    roots = _roots(frames)
    return [frame for frame in frames if is_own(frame.file, roots)]


def waiting_own(frames: Sequence[Frame]) -> CodePlace | None:
    """Return the innermost line of the user's own files on the stack of a thread that waits, or
    else of a package. A package waits because the program calls it.
    """
    inner = wait_kinds.own_frames(frames)
    users = next((f for f in inner if fr.normalise_file(f.file) == fr.USER), None)
    if users is not None and is_own(users.file):
        return CodePlace(f"{users.file}:{users.line}", users.function)
    return innermost_own(inner or frames)


def traced_own(seen: Observation) -> CodePlace | None:
    """Return the innermost line of the program that Dynamo traced when it raised the exception, as
    its message quotes it. A line of the user's own files comes before one of a package. None if
    there is none.

    The code that Dynamo traces has no frame in the traceback.
    """
    if seen.raised is None:
        return None
    message = fr.root_cause(seen.raised).message
    for link in seen.raised.chain:
        message = message if _TRACED_STACK.search(message) else link.message
    _, *quoted = _TRACED_STACK.split(message, maxsplit=1)
    places = [
        CodePlace(f"{m['file']}:{m['line']}", m["function"])
        for m in _QUOTED_FRAME.finditer("".join(quoted))
        if is_own(m["file"])
    ]
    own = [place for place in places if not place.package]
    return next(reversed(own or places), None)


def stack_of(verdict: Verdict, seen: Observation) -> tuple[Frame, ...]:
    """Return the frames that locate a failure, innermost first: those of the root exception or of
    the fault, or those that did not move.
    """
    if verdict.kind == "hang" and seen.evidence.tasks and wait_graph.is_loop_at_rest(seen):
        return task_waits.ordered_tasks(seen)[0].frames
    if verdict.kind in ("hang", "slow-compile"):
        stacks = max(stacks_by_tool(only_recent(seen), is_raw=True).values(), key=len, default=[])
        # a single stack of an advancing compile is chance
        is_chance = verdict.kind == "slow-compile" and len(stacks) < 2
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
    """Return the custom operator that failed, such as ``mylib::op``; empty if no custom operator
    did. One that breaks its contract in eager is responsible for wrong results and crashes.
    """
    is_silent = kind_named(verdict.kind).compares_results
    if seen.broken_operator and (is_silent or verdict.kind == "crash"):
        return seen.broken_operator
    raised = blamed_exception(seen)
    message = fr.root_cause(raised).message if raised is not None else ""
    match = _IN_OPERATOR.search(message) or _ON_FAKE.search(message)
    if is_silent:
        match = next(iter(reversed(list(_OPERATOR.finditer(seen.departure)))), None)
    if match is None or is_torch_namespace(match["space"]):
        return ""
    return f"{match['space']}::{match['name']}"


def fails_in_eager_too(verdict: Verdict, what: str, eager: str) -> bool:
    """Return whether a program fails without torch.compile as it does with it.

    ``what`` is the ``TYPE: MESSAGE`` of the failure, where TYPE may be that of a wrapper. ``eager``
    says how the program ended without torch.compile: ``TYPE: MESSAGE``, a signal or an exit status.
    """
    if verdict.kind == "crash":
        return eager == f"killed by {verdict.cause}"
    if verdict.kind != "exception":
        return False
    types, message = _types_and_message(what)
    type_of_eager, _, message_of_eager = eager.partition(":")
    theirs = normalise_message(message_of_eager.strip()).split()
    alike = difflib.SequenceMatcher(None, message.split(), theirs, autojunk=False).ratio()
    return type_of_eager.rpartition(".")[2] in types and alike >= MIN_ALIKE


def _types_and_message(what: str) -> tuple[list[str], str]:
    """Return the types at the start of ``TYPE: TYPE: MESSAGE``, without modules, and the rest."""
    types: list[str] = []
    while match := (_ERROR if types else _ANY_TYPE).match(what):
        types.append(match["type"].rpartition(".")[2])
        what = what[match.end() :]
    return types, what
