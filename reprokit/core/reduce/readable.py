"""Make a repro easy to read: public names, short names, few lines, a comment on the failure."""

from __future__ import annotations

import ast
import functools
import re
import textwrap
from collections.abc import Callable

from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.reduce.ast_edits import (
    ReplacedNode,
    Test,
    copy_tree,
    is_definition,
    is_import,
    is_main,
    reads_name,
    target_names,
)
from reprokit.core.shared.operators import OBSERVED

MAX_WIDTH = 88
_CONCERNS_IMPORTS = re.compile(r"environ|\bsys\.(?!argv)|path|import|warnings|logging|seed")
_PUBLIC: tuple[tuple[str, str], ...] = (
    (r"torch\._C\._nn\.(\w+)", r"torch.nn.functional.\1"),
    (r"torch\._C\._special\.special_(\w+)", r"torch.special.\1"),
    (r"torch\._C\._fft\.fft_(\w+)", r"torch.fft.\1"),
    (r"torch\._C\._linalg\.linalg_(\w+)", r"torch.linalg.\1"),
    (r"torch\.ops\.higher_order\.(\w+)", r"torch.\1"),
    (r"torch\.ops\.aten\.(\w+)\.\w+", r"torch.\1"),
    (r"torch\.ops\.aten\.(\w+)", r"torch.\1"),
)


def public_names(text: str, test: Test) -> str:
    """Replace internal names of torch by the public ones: all at once, or else each pattern
    alone.
    """
    changed = text
    for private, public in _PUBLIC:
        changed = re.sub(private, public, changed)
    if changed != text and test(changed):
        return changed
    for private, public in _PUBLIC:
        changed = re.sub(private, public, text)
        if changed != text and test(changed):
            text = changed
    return text


def plain_names(text: str, test: Test) -> str:
    """Inline values that are read once, and give arguments and local variables short names."""
    steps: list[Callable[[str], str]] = [_inlined]
    # each function alone too, because one that must not change, such as a backend of the user,
    # would prevent the change of the others
    steps += [functools.partial(_inlined, only=f.name) for f in _functions(ast.parse(text))]
    for step in (*steps, _renamed, without_prints):
        changed = step(text)
        if changed != text and test(changed):
            text = changed
    return text


def flatten_calls(text: str) -> str:
    """Return the program without ``if __name__ == "__main__"``, docstrings and comments, and with
    its imports first.
    """
    tree = ast.parse(text)
    body: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.If) and is_main(node):
            body += node.body
        else:
            body.append(node)
    tree.body = _imports_first(body)
    for owner in ast.walk(tree):
        rows = getattr(owner, "body", None)
        if isinstance(rows, list) and isinstance(
            owner, (ast.Module, ast.ClassDef, ast.FunctionDef)
        ):
            kept = [
                r
                for r in rows
                if not (isinstance(r, ast.Expr) and isinstance(r.value, ast.Constant))
            ]
            owner.body = kept or [ast.Pass()]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _imports_first(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a module with each import once, and those at the top that no
    statement before them may concern, such as a change of a variable of the environment.
    """
    seen: set[str] = set()
    first: list[ast.stmt] = []
    rest: list[ast.stmt] = []
    can_move = True
    for node in body:
        text = ast.unparse(node)
        if isinstance(node, ast.Pass) or text in seen:
            continue
        if is_import(node):
            seen.add(text)
            (first if can_move else rest).append(node)
            continue
        can_move &= is_definition(node) or not _CONCERNS_IMPORTS.search(text)
        rest.append(node)
    return [*first, *rest]


_ASSIGNING = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.Match,
)
"""Statements that assign names which are no ``ast.Name``."""


def _drop_unused_globals(tree: ast.Module) -> None:
    """Leave out the names of ``global`` statements that their functions do not assign."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
        stored = {n.id for n in names if not isinstance(n.ctx, ast.Load)}
        if any(isinstance(n, _ASSIGNING) for row in function.body for n in ast.walk(row)):
            continue
        for row in function.body:
            if isinstance(row, ast.Global):
                row.names = [name for name in row.names if name in stored]
        kept = [r for r in function.body if not isinstance(r, ast.Global) or r.names]
        function.body = kept or [ast.Pass()]


def lay_out(text: str, title: str, kind: str) -> str:
    """Format the program with blank lines, and a comment above the call on what is expected and
    what happens.
    """
    tree = _Sliced().visit(ast.parse(text))
    _drop_unused_globals(tree)
    rest = [n for n in tree.body if not isinstance(n, ast.FunctionDef)]
    call = next((n for n in reversed(rest) if "compile" in ast.unparse(n)), None)
    happens = textwrap.wrap(
        title, MAX_WIDTH - 12, break_long_words=False, break_on_hyphens=False
    ) or [kind]
    row = kind_named(kind)
    is_of_eager = row.is_passed_in_eager and "GPUTarget" not in text
    comment = [
        f"# expected: {row.expected or 'what eager does'}"
        f"{', as without torch.compile' if is_of_eager else ''}",
        f"# happens:  {happens[0]}",
        *(f"#           {row}" for row in happens[1:]),
    ]
    rows: list[str] = []
    before: ast.stmt | None = None
    for node in tree.body:
        is_definition = isinstance(node, (ast.FunctionDef, ast.ClassDef))
        was_definition = isinstance(before, (ast.FunctionDef, ast.ClassDef))
        was_import = isinstance(before, (ast.Import, ast.ImportFrom))
        is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        if before is not None and (is_definition or was_definition):
            rows += ["", ""]
        elif before is not None and ((was_import and not is_import) or node is call):
            rows.append("")
        if isinstance(node, ast.FunctionDef) and node.name.endswith(OBSERVED):
            rows.append("# stands for an operator of a library, and does not compute its values")
        if node is call:
            rows += comment
        rows += ast.unparse(node).splitlines()
        before = node
    return "\n".join(rows) + "\n"


class _Sliced(ast.NodeTransformer):
    """Replaces ``x[slice(1, None, None)]``, which a graph contains, by ``x[1:]``."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        plain = [self._plain(part) for part in parts]
        if parts:
            node.slice = (
                ast.Tuple(plain, ast.Load()) if isinstance(node.slice, ast.Tuple) else plain[0]
            )
        return ast.fix_missing_locations(node)

    @staticmethod
    def _plain(part: ast.expr) -> ast.expr:
        is_slice = (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and part.func.id == "slice"
        )
        if (
            not isinstance(part, ast.Call)
            or not is_slice
            or len(part.args) not in (2, 3)
            or part.keywords
        ):
            return part
        ends = [None if isinstance(a, ast.Constant) and a.value is None else a for a in part.args]
        return ast.Slice(*ends)


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]


def _inlined(text: str, only: str = "") -> str:
    tree = ast.parse(text)
    for function in [f for f in _functions(tree) if only in ("", f.name)]:
        index = 0
        while index + 1 < len(function.body):
            row, after = function.body[index], function.body[index + 1]
            name = target_names(row)
            is_last = target_names(after) == name or _is_dead(name, function.body[index + 2 :])
            if (
                name
                and isinstance(row, ast.Assign)
                and len(reads_name(after, name)) == 1
                and is_last
            ):
                changed = ReplacedNode({name: row.value}).visit(copy_tree(after))
                if len(ast.unparse(changed)) <= MAX_WIDTH - 8:
                    function.body[index : index + 2] = [changed]
                    index = max(index - 1, 0)
                    continue
            index += 1
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _is_dead(name: str, rows: list[ast.stmt]) -> bool:
    """Return whether nothing reads the name before it is assigned again."""
    for row in rows:
        if reads_name(row, name):
            return False
        if target_names(row) == name:
            return True
    return True


def _renamed(text: str) -> str:
    """Rename the arguments of ``repro`` to x, y, z, w, and odd local names to a, b, c."""
    tree = ast.parse(text)
    function = next((f for f in _functions(tree) if f.name == "repro"), None)
    if function is None:
        return text
    arguments = [a.arg for a in function.args.args]
    local = [
        n.id
        for r in function.body
        for n in ast.walk(r)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    local = [n for n in dict.fromkeys(local) if n not in arguments]
    others = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - set(arguments) - set(local)
    odd = re.compile(r"[a-z]\d*(_\d+)?|[lL]_.*|.*_{2,}.*|(arg|primals|tangents|getitem).*")
    names: dict[str, str] = {}
    _assign_names(
        names,
        [a for a in arguments if odd.fullmatch(a)],
        "xyzw",
        others | {a for a in arguments if not odd.fullmatch(a)},
    )
    taken = others | set(names.values()) | {n for n in (*arguments, *local) if not odd.fullmatch(n)}
    _assign_names(names, [n for n in local if odd.fullmatch(n)], "abcdefgh", taken)
    for name in ast.walk(tree):
        if isinstance(name, ast.Name):
            name.id = names.get(name.id, name.id)
        elif isinstance(name, ast.arg):
            name.arg = names.get(name.arg, name.arg)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _assign_names(names: dict[str, str], some: list[str], letters: str, taken: set[str]) -> None:
    free = (n for n in [*letters, *(f"{letters[0]}{i}" for i in range(2, 999))] if n not in taken)
    for name in some:
        names[name] = next(free)


def without_prints(text: str) -> str:
    """Return the program with ``f(x)`` instead of ``print(f(x))``."""
    tree = ast.parse(text)
    for owner in ast.walk(tree):
        for field in ("body",):
            rows = getattr(owner, field, None)
            for row in rows if isinstance(rows, list) else ():
                if (
                    isinstance(row, ast.Expr)
                    and isinstance(row.value, ast.Call)
                    and isinstance(row.value.func, ast.Name)
                    and row.value.func.id == "print"
                    and len(row.value.args) == 1
                ):
                    row.value = row.value.args[0]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def with_seed(text: str, seed: int | None) -> str:
    """Return the program with this random seed and no other one; without a seed for None."""
    tree = ast.parse(text)
    tree.body = [n for n in tree.body if not ast.unparse(n).startswith("torch.manual_seed(")]
    if seed is not None:
        # the seed comes before the first statement that may draw: after imports and definitions
        kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
        others = (i for i, n in enumerate(tree.body) if not isinstance(n, kinds))
        place = next(others, len(tree.body))
        tree.body.insert(place, ast.parse(f"torch.manual_seed({seed})").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
