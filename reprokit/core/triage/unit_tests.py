"""Turn a repro into unit tests: one in PyTorch's style, and a plain one for pytest.

The tests fail while the bug exists. In PyTorch's style the failure is expected until somebody fixes
the bug, as its contributors do it; the plain one is strict, so that it fails until then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.records.finding import Identity
from reprokit.core.records.process_state import UNMET_STATUS

PLACES = {
    "dynamo-trace": ("test/dynamo/test_misc.py", "module: dynamo", "torch._dynamo.test_case"),
    "guards": ("test/dynamo/test_guard_manager.py", "module: dynamo", "torch._dynamo.test_case"),
    "aot": ("test/functorch/test_aotdispatch.py", "oncall: pt2", "torch._dynamo.test_case"),
    "partition": ("test/functorch/test_aotdispatch.py", "oncall: pt2", "torch._dynamo.test_case"),
    "export": ("test/export/test_export.py", "oncall: export", "torch._dynamo.test_case"),
}
"""Phase -> the file of PyTorch's tree with tests of this part, its owner, and the base class."""
INDUCTOR = (
    "test/inductor/test_torchinductor.py",
    "module: inductor",
    "torch._inductor.test_case",
)
SLOW = ("slow-compile", "superlinear-compile")
LIMIT_S = 120
"""A program in a process of its own that takes longer hangs."""
MAX_NAME_CHARS = 50
_UNMET = f"raise SystemExit({UNMET_STATUS})"
_SKIP = 'raise unittest.SkipTest("this machine cannot show the failure")'


@dataclass(frozen=True)
class UnitTest:
    """The text of one test."""

    style: str
    """``pytorch`` or ``pytest``."""
    file: str
    """A name for the file."""
    belongs_in: str
    """The file of PyTorch's tree with tests of the same part; empty for a plain test."""
    text: str


def unit_tests(program: str, parts: Identity, note: str) -> tuple[UnitTest, UnitTest]:
    """Return both tests of a repro; ``parts`` are those of the signature.

    ``note`` is one line for a comment, such as the issue. Raises ValueError for a text that is no
    program.
    """
    name = test_name(parts)
    path, owner, base = PLACES.get(parts.phase, INDUCTOR)
    if parts.kind in SLOW:
        raise ValueError("a machine decides how long a slow compile takes, so a test cannot")
    in_process = parts.kind in ("crash", "hang") or "os.exec" in program
    future, program = _without_future(program)
    before, body = _in_a_process(program) if in_process else _split_program(program)
    class_name = "Test" + "".join(word.capitalize() for word in name.split("_")[1:])
    pytorch = [
        f'# Owner(s): ["{owner}"]',
        *future,
        "import unittest",
        "",
        f"from {base} import run_tests, TestCase",
        "",
        *before,
        "",
        "",
        f"class {class_name}(TestCase):",
        f"    # {note}",
        "    @unittest.expectedFailure  # delete this line with the fix",
        f"    def {name}(self):",
        *_indented(body, 8),
        "",
        "",
        'if __name__ == "__main__":',
        "    run_tests()",
    ]
    plain = [
        *future,
        "import unittest",
        "",
        *before,
        "",
        "",
        f"def {name}() -> None:",
        f"    # {note}",
        *_indented(body, 4),
    ]
    file = f"{name}.py"
    return (
        UnitTest("pytorch", f"test_pytorch_{file.removeprefix('test_')}", path, _joined(pytorch)),
        UnitTest("pytest", file, "", _joined(plain)),
    )


def test_name(parts: Identity) -> str:
    """Return the name of a test function: ``test_`` and words of the signature."""
    what = re.sub(r"\b(?:torch|triton)(?:\.\w+)*\.", "", parts.what)
    words = re.findall(r"[A-Za-z][A-Za-z0-9]+", f"{parts.kind} {what} {parts.place}")
    name = "test"
    for word in words:
        if len(name) + len(word) >= MAX_NAME_CHARS:
            break
        name += f"_{word.lower()}"
    return name


def _joined(rows: Sequence[str]) -> str:
    text = "\n".join(rows) + "\n"
    if "unittest.SkipTest" not in text and "unittest.expectedFailure" not in text:
        text = text.replace("import unittest\n\n", "", 1)
    return text


def _indented(rows: Sequence[str], spaces: int) -> list[str]:
    return [" " * spaces + row if row.strip() else "" for row in rows]


def _in_a_process(program: str) -> tuple[list[str], list[str]]:
    """Return the rows before a test, and its body, for a program that ends its process or hangs."""
    ast_of(program)
    quote = '"""' if '"""' not in program else "'''"
    if quote in program:
        raise ValueError("it has both kinds of triple quotes")
    text = program.replace("\\", "\\\\").strip("\n").split("\n")
    modules = [f"import {name}" for name in ("pathlib", "subprocess", "sys", "tempfile")]
    before = [*modules, "", f"PROGRAM = {quote}", *text, quote]
    body = [
        "with tempfile.TemporaryDirectory() as folder:",
        '    path = pathlib.Path(folder, "program.py")',
        "    path.write_text(PROGRAM)",
        "    command = [sys.executable, str(path)]",
        f"    done = subprocess.run(command, timeout={LIMIT_S}, capture_output=True, text=True)",
        f"if done.returncode == {UNMET_STATUS}:",
        f"    {_SKIP}",
        "assert done.returncode == 0, done.stderr",
    ]
    return before, body


def _without_future(program: str) -> tuple[list[str], str]:
    """Return the ``__future__`` imports of a program, which come first, and the rest of it."""
    rows = program.split("\n")
    future = [row for row in rows if row.startswith("from __future__ import ")]
    return future, "\n".join(row for row in rows if row not in future)


def _split_program(program: str) -> tuple[list[str], list[str]]:
    """Return the rows before a test, and its body: the statements from the first one that compiles.

    Imports, definitions and values before it stay at the level of the module, as they are in the
    repro, because a test would change what they close over.
    """
    module = ast_of(program)
    if "__main__" in program:
        raise ValueError("it has statements that only a program runs, not a test")
    rows = program.split("\n")
    start = next(
        (
            index
            for index, node in enumerate(module.body)
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom))
            and _COMPILES.search(ast.unparse(node))
        ),
        len(module.body) - 1,
    )
    inside = module.body[start:]
    first = min((inside[0].lineno, *_decorator_lines(inside[0])))
    first -= _comment_rows_above(rows, first)
    names_before = _assigned(module.body[:start]) | _read(module.body[:start])
    shared = sorted(names_before & _assigned(inside))
    body = [f"global {', '.join(shared)}"] if shared else []
    body += rows[first - 1 :]
    while body and not body[-1].strip():
        body.pop()
    if any("\n" in str(node.value) for node in _texts(inside)):
        raise ValueError("a text of several lines cannot be indented")
    before = [row.replace(_UNMET, _SKIP) for row in rows[: first - 1]]
    while before and not before[-1].strip():
        before.pop()
    return before, [row.replace(_UNMET, _SKIP) for row in body]


_COMPILES = re.compile(r"\bcompile\(|\bexport\(|aoti_|standalone_compile|\bcompiled\(")


def ast_of(program: str) -> ast.Module:
    """Return the tree of a program; raises ValueError for a text that is no program."""
    try:
        module = ast.parse(program)
    except (SyntaxError, RecursionError) as problem:
        raise ValueError(f"not a program: {problem}") from problem
    if not module.body:
        raise ValueError("it has no statement")
    return module


def _decorator_lines(node: ast.stmt) -> list[int]:
    return [one.lineno for one in getattr(node, "decorator_list", ())]


def _comment_rows_above(rows: Sequence[str], line: int) -> int:
    """Return how many rows directly above a line are comments."""
    count = 0
    while line - 2 - count >= 0 and rows[line - 2 - count].startswith("#"):
        count += 1
    return count


def _assigned(nodes: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements assign in their own scope."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        names |= {
            one.id
            for one in ast.walk(node)
            if isinstance(one, ast.Name) and isinstance(one.ctx, (ast.Store, ast.Del))
        }
    return names


def _read(nodes: Sequence[ast.stmt]) -> set[str]:
    """Return the names that statements read, also in their functions."""
    every = (one for node in nodes for one in ast.walk(node))
    return {one.id for one in every if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}


def _texts(nodes: Sequence[ast.stmt]) -> list[ast.Constant]:
    every = (one for node in nodes for one in ast.walk(node))
    return [one for one in every if isinstance(one, ast.Constant) and isinstance(one.value, str)]
