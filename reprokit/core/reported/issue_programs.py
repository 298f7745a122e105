"""Find the program in the code blocks of an issue, and complete it where there is no doubt.

A program is complete when each name that it reads is defined by it, by an earlier block, or by one
of the imports that everybody writes in the same way. Nothing else is guessed.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import re
import symtable
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reprokit.core.judge.stacks.location import plural
from reprokit.core.reported import graph_inputs

MAX_PROGRAM_CHARS = 100_000
"""GitHub refuses a body of more than 65,536 characters, so a longer block is not from an issue."""
IMPORTS = {
    "torch": "import torch",
    "nn": "from torch import nn",
    "F": "import torch.nn.functional as F",
    "Tensor": "from torch import Tensor",
    "dist": "import torch.distributed as dist",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "np": "import numpy as np",
    "numpy": "import numpy",
    "make_fx": "from torch.fx.experimental.proxy_tensor import make_fx",
    "rand_strided": "from torch._dynamo.testing import rand_strided",
    "partial": "from functools import partial",
    "dataclass": "from dataclasses import dataclass",
    "product": "from itertools import product",
    **{
        name: f"from typing import {name}"
        for name in ("Any", "Callable", "Dict", "List", "NamedTuple", "Optional", "Tuple", "Union")
    },
    **{
        name: f"import {name}"
        for name in (
            *("collections", "contextlib", "copy", "dataclasses", "functools", "gc", "itertools"),
            *("logging", "math", "operator", "os", "pathlib", "pprint", "random", "sys", "time"),
            *("traceback", "typing", "warnings"),
        )
    },
}
"""Name -> the import that defines it, where everybody means the same."""
PYTHON, UNNAMED = ("python", "py", "python3", "py3", "ipython", "pycon"), ""
_COMPILES = re.compile(
    r"\b(?:torch\.)?compile\(|torch\.compile\b|\.compile\(|\bexport(?:_for_training)?\("
    r"|_dynamo\.optimize|aot_(?:function|module|compile|export)|aoti_|\bmake_fx\("
    r"|compiled_autograd|compile_fx|standalone_compile|\bcompile_to\w*\(|symbolic_trace\("
)
"""How a program enters the compiler."""
_COMMENTED = re.compile(
    r"^(?P<indent>[ ]*)#[ ]*(?P<decorator>@torch\.(?:compile|_dynamo\.optimize)\b.*)$", re.MULTILINE
)
"""A decorator that enters the compiler, in a comment."""
_PROMPT = re.compile(r"^(?:>>>|In \[\d+\]:) ?", re.MULTILINE)
_GIVEN = {
    "__name__",
    "__file__",
    "__doc__",
    "__builtins__",
    "__spec__",
    "__debug__",
    *dir(builtins),
}


@dataclass(frozen=True)
class CodeBlock:
    """A code block of a Markdown text."""

    language: str
    """As the fence names it, in lower case."""
    text: str
    line: int
    """The line of its first line in the text, from 1."""


@dataclass(frozen=True)
class FoundProgram:
    """The program of an issue."""

    text: str
    lines: tuple[int, ...]
    """Where its blocks begin in the text of the issue."""
    added: tuple[str, ...] = ()
    """The lines that reprokit added, such as imports."""


class NoProgram(Exception):
    """The text has no complete program; the message says what is missing."""


def find_programs(blocks: Sequence[CodeBlock], chosen: int = 0) -> list[FoundProgram]:
    """Return the complete programs of a text that enter the compiler, in their order.

    ``chosen`` is the number of a block, from 1, that must be the last one of the program.

    Raises:
        NoProgram: there is none, or ``chosen`` is none.
    """
    programs = [(block, text) for block in blocks if (text := python_of_block(block)) is not None]
    if chosen:
        if not 0 < chosen <= len(blocks):
            raise NoProgram(
                f"the text has {plural(len(blocks), 'code block')}, so there is no block {chosen}"
            )
        wanted = [pair for pair in programs if pair[0] is blocks[chosen - 1]]
        if not wanted:
            raise NoProgram(f"block {chosen} is not a Python program")
    else:
        wanted = [pair for pair in programs if _enters_compiler(pair[1])]
    found: list[FoundProgram] = []
    problems: list[str] = []
    for block, text in wanted:
        before = programs[: programs.index((block, text))]
        try:
            found.append(_complete(block, text, before))
        except (NoProgram, SyntaxError, RecursionError) as problem:
            problems.append(str(problem))
    if not found and not chosen:
        found = _uncommented(programs) or _with_calls(programs)
    if found:
        return found
    if problems:
        raise NoProgram(problems[0])
    if programs:
        raise NoProgram("no program of the text enters the compiler")
    raise NoProgram(
        "the text has no code block"
        if not blocks
        else "no code block of the text is a Python program"
    )


def _enters_compiler(text: str) -> bool:
    """Return whether a program enters the compiler; its comments do not count."""
    return bool(_COMPILES.search(ast.unparse(ast.parse(text))))


def python_of_block(block: CodeBlock) -> str | None:
    """Return the Python program of a block, without prompts; None if it is none."""
    if block.language not in (*PYTHON, UNNAMED) or len(block.text) > MAX_PROGRAM_CHARS:
        return None
    text = textwrap.dedent(block.text.replace("\t", "    ").replace("\r", "")).strip("\n")
    if _PROMPT.search(text):
        text = _without_prompts(text)
    try:
        module = ast.parse(text)
        symtable.symtable(text, "program", "exec")  # refuses more, such as two equal arguments
        ast.unparse(module)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    does_something = any(
        isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Call))
        for node in ast.walk(module)
    )
    return text + "\n" if does_something else None


def _without_prompts(text: str) -> str:
    """Return the input of a session at Python's prompt, without its output."""
    rows: list[str] = []
    is_input = False
    for row in text.split("\n"):
        if prompt := _PROMPT.match(row):
            rows.append(row[prompt.end() :])
            is_input = True
        elif is_input and (more := re.match(r"(?:\.\.\.|\s*\.\.\.:) ?", row)):
            rows.append(row[more.end() :])
        else:
            is_input = False
    return "\n".join(rows)


def _complete(block: CodeBlock, text: str, before: Sequence[tuple[CodeBlock, str]]) -> FoundProgram:
    """Return a program whose names are all defined, by earlier blocks and by imports."""
    parts, lines = [text], [block.line]
    missing = undefined_names(text)
    for earlier, other in reversed(before):
        if not missing - IMPORTS.keys():
            break
        if defined_names(other) & missing:
            parts.insert(0, other)
            lines.insert(0, earlier.line)
            missing = undefined_names("\n".join(parts))
    if unknown := sorted(missing - IMPORTS.keys()):
        names = ", ".join(unknown[:4]) + (", ..." if len(unknown) > 4 else "")
        raise NoProgram(f"the program in line {block.line} uses {names}, which no block defines")
    added = tuple(IMPORTS[name] for name in sorted(missing))
    return FoundProgram(_joined(added, parts), tuple(lines), added)


def _joined(imports: Iterable[str], parts: Sequence[str]) -> str:
    """Return a program; imports follow the ``__future__`` imports, which come first."""
    rows = "\n".join(parts).split("\n")
    future = [row for row in rows if row.startswith("from __future__ import ")]
    rest = [row for row in rows if row not in future]
    return "\n".join([*dict.fromkeys(future), *imports, *rest]).strip("\n") + "\n"


def _uncommented(programs: Sequence[tuple[CodeBlock, str]]) -> list[FoundProgram]:
    """Return programs whose only entry into the compiler is a decorator in a comment."""
    found = []
    for place, (block, text) in enumerate(programs):
        changed = _COMMENTED.sub(r"\g<indent>\g<decorator>", text)
        if changed == text:
            continue
        with contextlib.suppress(NoProgram, SyntaxError):
            program = _complete(block, changed, programs[:place])
            added = (*program.added, *(match["decorator"] for match in _COMMENTED.finditer(text)))
            found.append(dataclasses.replace(program, added=added))
    return found


def _with_calls(programs: Sequence[tuple[CodeBlock, str]]) -> list[FoundProgram]:
    """Return printed graphs whose annotations give each input, and functions without arguments, as
    programs that compile and call them.
    """
    found = []
    for block, text in programs:
        rows = graph_inputs.program_rows(text) or _call_of_function(text)
        if not rows:
            continue
        with contextlib.suppress(NoProgram):
            program = _complete(block, "\n".join([text, *rows]), ())
            found.append(dataclasses.replace(program, added=(*program.added, *rows)))
    return found


def _call_of_function(text: str) -> list[str]:
    """Return the call of the only function of a program, if it has no argument and no caller."""
    module = ast.parse(text)
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    others = [n for n in module.body if not isinstance(n, (ast.Import, ast.ImportFrom, ast.Expr))]
    if len(functions) != 1 or others != functions:
        return []
    arguments = functions[0].args
    named = [*arguments.posonlyargs, *arguments.args]
    has_required = len(named) > len(arguments.defaults) or None in arguments.kw_defaults
    is_called = any(isinstance(n, ast.Name) and n.id == functions[0].name for n in ast.walk(module))
    return [] if has_required or is_called else [f"torch.compile({functions[0].name})()"]


def asserts_something(text: str) -> bool:
    """Return whether a program asserts something about its own results, and not only about the
    machine: ``assert torch.cuda.is_available()``.
    """
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return any(_is_assertion(node) for node in ast.walk(ast.parse(text)))
    return False


def _is_assertion(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return not re.search(r"is_\w*available|__version__|isinstance", ast.unparse(node.test))
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    name = node.func.id if isinstance(node.func, ast.Name) else name
    return re.match(r"_?assert", name) is not None


def undefined_names(text: str) -> set[str]:
    """Return the names that a program reads and does not define, at any depth.

    The result is empty where ``from MODULE import *`` may define them.
    """
    module = ast.parse(text)
    if any(
        isinstance(node, ast.ImportFrom) and any(one.name == "*" for one in node.names)
        for node in ast.walk(module)
    ):
        return set()
    table = symtable.symtable(text, "program", "exec")
    return _global_reads(table) - defined_names(text) - _GIVEN


def defined_names(text: str) -> set[str]:
    """Return the names that a program defines at its top level, or with ``global``."""
    table = symtable.symtable(text, "program", "exec")
    names = {
        one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()
    }
    pending = list(table.get_children())
    while pending:
        child = pending.pop()
        pending += child.get_children()
        names |= {
            one.get_name()
            for one in child.get_symbols()
            if one.is_declared_global() and one.is_assigned()
        }
    return names


def _global_reads(table: symtable.SymbolTable) -> set[str]:
    """Return the global names that a scope, and those inside it, read."""
    is_module = table.get_type() == "module"
    names = {
        one.get_name()
        for one in table.get_symbols()
        if one.is_referenced() and (is_module or one.is_global())
    }
    for child in table.get_children():
        names |= _global_reads(child)
    return names
