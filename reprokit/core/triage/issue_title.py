"""Write the title and the first paragraph of an issue: the module, the error in words, and the
operations of the program.
"""

from __future__ import annotations

import ast
import re

from reprokit.core.judge.stacks.evidence import blamed_exception
from reprokit.core.judge.stacks.frames import root_cause
from reprokit.core.judge.stacks.phases import PHASE_WORDS
from reprokit.core.records.finding import Identity, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.source import entry_programs

MAX_TITLE_CHARS = 120
MAX_MESSAGE_CHARS = 70
MAX_OPERATIONS = 3
_MODULES = {
    "dynamo": ("dynamo-trace", "guards"),
    "export": ("export",),
    "aot": ("aot", "partition"),
    "inductor": (
        *("backend", "fx-passes", "lowering", "scheduler", "codegen", "cpp-build"),
        *("worker-wait", "triton-compile", "kernel-run"),
    ),
    "distributed": ("collective",),
    "triton": ("ttir", "ttgir", "llir", "ptx", "ptxas"),
}
"""The part of torch -> its phases, as maintainers write it in brackets."""
_PARTS = {"dynamo": "dynamo", "aot": "aot", "decompositions": "decomp", "inductor": "inductor"}
"""The part of the first failing ablation step -> the same."""
_FOLDERS = {"torch/_dynamo/": "dynamo", "torch/_functorch/": "aot"}
"""The folder of a failure while the backend is called, or while compiled code runs -> the same.
Such a backend can be a wrapper, such as that of DistributedDataParallel, and such code can be of
AOTAutograd. Other failures are those of Inductor.
"""
_ENTRIES = {
    entry_programs.AOTINDUCTOR: "AOTInductor",
    entry_programs.EXPORT: "`torch.export`",
    entry_programs.STANDALONE: "`standalone_compile`",
}
"""Entry -> how the first sentence names it; ``torch.compile`` for others."""
_FRAME = re.compile(r"[\w./-]+\.py:(?:[\w<>]+\.)*([\w<>]+)")
_MESSAGE = "message: "
"""The evidence with the message of an exception, which is the error of the C++ compiler if there is
one.
"""
_IN_PHASE = re.compile(r", in phase ([\w-]+)")
_ARITHMETIC = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.Pow: "pow"}
"""Operators that are named where a program has no other operation."""
_INPUTS = frozenset(
    "full arange zeros ones rand randn randint empty tensor manual_seed eye linspace compile"
    " Generator device size dim shape no_grad inference_mode set_grad_enabled"
    " requires_grad_ range len int float list tuple dict print super".split()
)
"""Calls that make inputs, or that are no operations."""


def make_issue_title(
    verdict: Verdict, identity: Identity, seen: Observation, program: str = ""
) -> str:
    """Return the title of an issue: ``[module] error in function (operations)``."""
    module = "".join(f"[{name}]" for name in _modules(verdict, identity, seen))
    error = _error_words(identity)
    function = _FRAME.match(identity.place)
    place = function[1] if function else ("" if "<" in identity.place else identity.place)
    if verdict.phase == "cpp-build":  # it is always the function that starts the C++ compiler
        place = ""
    where = f" in {place}" if place else ""
    operations = operations_of(program)
    what = f" ({', '.join(operations)})" if operations else ""
    title = f"{module} {error}{where}"
    return title + what if len(title + what) <= MAX_TITLE_CHARS else title


def first_sentence(verdict: Verdict, seen: Observation) -> str:
    """Return what fails, in one sentence."""
    raised = blamed_exception(seen) if verdict.kind == "exception" else None
    if raised is None:
        return _IN_PHASE.sub(_while, verdict.reason).rstrip(".") + "."
    root = root_cause(raised)
    messages = (e.removeprefix(_MESSAGE) for e in verdict.evidence if e.startswith(_MESSAGE))
    message = next(messages, "") or next(iter(root.message.strip().splitlines()), "")
    name = root.type.removeprefix("builtins.").rpartition(".")[2]
    error = f"{name}: {_shorten(message, 200)}" if message else name
    shown = error.replace("`", "'")
    usual = entry_programs.EXPORT if verdict.phase == "export" else ""
    entered = _ENTRIES.get(seen.entry or usual, "`torch.compile`")
    return f"{entered} raises `{shown}`{_while_in(verdict.phase)}."


def _while_in(phase: str | None) -> str:
    doing = PHASE_WORDS.get(phase or "", "")
    return f" while {doing}" if doing else ""


def _while(match: re.Match[str]) -> str:
    return _while_in(match[1]) or match[0]


def operations_of(program: str) -> list[str]:
    """Return the last operations of the compiled function of ``program``, in the order in which
    they run.

    The names are those of torch: ``softmax`` for ``torch.softmax(x, 1)`` and ``x.softmax(1)``.
    """
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError):
        return []
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in ("repro", "forward", "f", "fn")
    ]
    visitor = _Operations()
    for function in functions:
        for statement in function.body:
            visitor.visit(statement)
    transforms = re.findall(r"\btorch\.func\.(\w+)\(", program)
    names = [*transforms, *(visitor.names or visitor.arithmetic)]
    return list(dict.fromkeys(names))[-MAX_OPERATIONS:]


class _Operations(ast.NodeVisitor):
    def __init__(self) -> None:
        self.names: list[str] = []
        self.arithmetic: list[str] = []

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion checks a result."""

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        if any(isinstance(target, ast.Subscript) for target in node.targets):
            self.names.append("indexed assignment")

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.MatMult):
            self.names.append("matmul")
        elif type(node.op) in _ARITHMETIC:
            self.arithmetic.append(_ARITHMETIC[type(node.op)])

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        words: list[str] = []
        function = node.func
        while isinstance(function, ast.Attribute):  # f(x) alone is a function of the program
            words.append(function.attr)
            function = function.value
        if "ops" in words:  # torch.ops.aten.add.Tensor
            place = words.index("ops")
            words = words[place - 2 : place - 1]
        if words and words[0] not in _INPUTS and not words[0].startswith("_"):
            self.names.append(words[0])


def _modules(verdict: Verdict, identity: Identity, seen: Observation) -> list[str]:
    part = _PARTS.get(seen.failing_part, "")
    phase = verdict.phase or ""
    name = next((module for module, phases in _MODULES.items() if phase in phases), "")
    folder = next((f for f in _FOLDERS if identity.place.startswith(f)), "")
    if phase == "kernel-run":
        name = _FOLDERS.get(folder, name)
    if phase == "backend":
        # with a backend of the program, it is not Inductor that was called
        name = _FOLDERS.get(folder, "" if seen.own_backend else name)
    if seen.kernel or name in ("triton", "distributed"):
        return [name or "triton"]
    names = [part or name or "torch.compile"]
    text = f"{identity.place} {identity.what}"
    if phase == "cpp-build" or "codegen/cpp" in text or _passes_cpp(seen):
        names.append("cpp")
    elif phase == "triton-compile":
        names.append("triton")
    return names


def _passes_cpp(seen: Observation) -> bool:
    """Return whether the failing exception came from the code generator for C++."""
    raised = blamed_exception(seen)
    return raised is not None and any(
        "torch/_inductor/codegen/cpp" in frame.file
        for link in raised.chain
        for frame in link.frames
    )


def _error_words(identity: Identity) -> str:
    """Return the error without the marks that a signature has for the parts that differ."""
    what = re.sub(r"#", "...", " ".join(identity.what.split()))
    kind = identity.kind.replace("-", " ")
    if identity.kind == "exception":
        type_, colon, message = what.partition(": ")
        if colon and "." in type_ and " " not in type_:
            type_ = type_.rpartition(".")[2]
        return _shorten(f"{type_}{colon}{message}", MAX_MESSAGE_CHARS) or kind
    words = kind
    if identity.kind in ("hang", "crash"):
        error = "hang" if identity.kind == "hang" else what or "crash"
        words = f"{error}{_while_in(identity.phase)}"
    if what and identity.kind != "crash":
        words = f"{words}: {what}"
    return _shorten(words, MAX_MESSAGE_CHARS)


def _shorten(text: str, max_chars: int) -> str:
    """Return the beginning of a redacted text, up to the end of a word."""
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars - 3].rpartition(' ')[0] or text[: max_chars - 3]}..."
