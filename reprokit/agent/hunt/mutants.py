"""Programs that fail, changed in one to three places: types, layouts, sizes, the order of
statements, forms in place, gradients and options of ``torch.compile``.

The place of the source is a folder of programs, which the host writes: those of the catalogue, or
the one of the user. The first line of a mutant names its program. A mutant that fails as its
program does is no finding.
"""

from __future__ import annotations

import ast
import functools
import os
import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

from .drawing import Drawing

HEAD = "# a mutant of "
MAKERS = frozenset(
    "randn rand zeros ones full arange empty tensor randint linspace eye zeros_like ones_like"
    " randn_like".split()
)
"""Functions that make a tensor."""
DTYPES = ("float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64")
LAYOUTS = (
    "torch.stack([{t}, {t}], -1)[..., 0]",
    "torch.cat([{t}, {t}])[: len({t})]",
    "{t}.t().contiguous().t()",
    "{t}.transpose(0, -1)",
    "{t}.flip(0)",
    "{t}[..., :1].expand_as({t})",
    "{t}[1:]",
    "{t}[None]",
    "{t}.to(memory_format=torch.channels_last)",
    "torch.nn.Parameter({t})",
    "{t}.requires_grad_()",
    "{t}.view(-1)",
    "{t}.squeeze()",
)
SIZES = (0, 1, 2, 3, 5, 17)
OPTIONS = {
    "dynamic": ("True", "False"),
    "fullgraph": ("True", "False"),
    "backend": ("'aot_eager'", "'inductor'", "'eager'"),
}
IN_PLACE = {
    "Add": "add_",
    "Sub": "sub_",
    "Mult": "mul_",
    "Div": "div_",
}
Change: TypeAlias = Callable[[ast.Module, random.Random], bool]
"""Changes one place of a program, and returns whether there was one."""


@functools.cache
def programs_of(folder: str) -> dict[str, str]:
    """Return the programs of a folder by their names."""
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found[name] = file.read()
    return found


def write_program(draw: Drawing) -> str:
    """Return a program of the folder with one to three changes."""
    programs = programs_of(draw.place)
    name = draw.choose("program", [*programs])
    tree = ast.parse(programs[name])
    wanted = draw.random.randint(1, 3)
    for _ in range(8 * wanted):
        change = draw.choose("change", [*CHANGES])
        if CHANGES[change](tree, draw.random):
            wanted -= 1
        else:
            draw.chosen.pop(f"change:{change}", None)
        if not wanted:
            break
    return f"{HEAD}{name}\n{ast.unparse(ast.fix_missing_locations(tree))}\n"


def parent_of(source: str, text: str) -> str:
    """Return the program of which a mutant was made; empty for a program of another source."""
    name, _, folder = source.partition("=")
    if name != "mutate":
        return ""
    return programs_of(folder)[text.partition("\n")[0].removeprefix(HEAD)]


def _calls(tree: ast.AST, names: frozenset[str]) -> list[ast.Call]:
    """Return the calls ``torch.NAME(...)``."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in names
        and ast.unparse(node.func.value) == "torch"
    ]


def _bodies(tree: ast.Module, least: int) -> list[list[ast.stmt]]:
    """Return the bodies with ``least`` statements or more, without imports and definitions."""
    found = []
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and sum(map(_is_plain, body)) >= least:
            found.append(body)
    return found


def _is_plain(row: ast.stmt) -> bool:
    return isinstance(row, (ast.Assign, ast.AugAssign, ast.Expr, ast.With, ast.If, ast.For))


def _replace(tree: ast.Module, old: ast.expr, text: str) -> None:
    """Replace an expression by that of a text."""
    new = ast.parse(text, mode="eval").body

    class Replacer(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    Replacer().visit(tree)


def _change_dtype(tree: ast.Module, draw: random.Random) -> bool:
    """Give a tensor another type."""
    calls = _calls(tree, MAKERS)
    if not calls:
        return False
    call, dtype = draw.choice(calls), f"torch.{draw.choice(DTYPES)}"
    plain = [word for word in call.keywords if word.arg != "dtype"]
    if len(plain) < len(call.keywords) or draw.random() < 0.5:
        call.keywords = [*plain, ast.keyword("dtype", ast.parse(dtype, mode="eval").body)]
    else:
        _replace(tree, call, f"{ast.unparse(call)}.to({dtype})")
    return True


def _change_layout(tree: ast.Module, draw: random.Random) -> bool:
    """Give a tensor another layout, another number of dimensions, or a gradient."""
    calls = _calls(tree, MAKERS)
    if not calls:
        return False
    call = draw.choice(calls)
    form = draw.choice(LAYOUTS)
    _replace(tree, call, f"(lambda t: {form.format(t='t')})({ast.unparse(call)})")
    return True


def _change_size(tree: ast.Module, draw: random.Random) -> bool:
    """Change a number in the call that makes a tensor, and sometimes all numbers like it."""
    found = [
        (node, node.value)
        for call in _calls(tree, MAKERS)
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and type(node.value) is int
    ]
    if not found:
        return False
    chosen, old = draw.choice(found)
    new = draw.choice([*SIZES, old + 1, 2 * old])
    for node, value in found if draw.random() < 0.5 else [(chosen, old)]:
        if value == old:
            node.value = new
    return old != new


def _move_statement(tree: ast.Module, draw: random.Random) -> bool:
    """Exchange two statements, repeat one, or remove one."""
    bodies = _bodies(tree, 2)
    if not bodies:
        return False
    body = draw.choice(bodies)
    places = [place for place, row in enumerate(body) if _is_plain(row)]
    first = draw.choice(places)
    kind = draw.choice(("exchange", "repeat", "remove"))
    if kind == "exchange":
        second = draw.choice(places)
        body[first], body[second] = body[second], body[first]
        return first != second
    if kind == "repeat":
        body.insert(first, body[first])
    else:
        del body[first]
    return True


def _change_in_place(tree: ast.Module, draw: random.Random) -> bool:
    """Replace an operation by its form in place, or change a variable before it is used."""
    if draw.random() < 0.5:
        found = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.BinOp) and type(node.op).__name__ in IN_PLACE
        ]
        if not found:
            return False
        node = draw.choice(found)
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        _replace(tree, node, f"({left}).{IN_PLACE[type(node.op).__name__]}({right})")
        return True
    functions = [row for row in _functions(tree) if row.args.args]
    if not functions:
        return False
    function = draw.choice(functions)
    names = [one.arg for one in function.args.args if one.arg != "self"]
    if not names:
        return False
    form = draw.choice(("{v}.add_(1)", "{v}.mul_(2)", "{v} = {v}[1:]", "{v}.t_()", "{v} = {v}[0]"))
    place = draw.randrange(len(function.body) + 1)
    function.body[place:place] = ast.parse(form.format(v=draw.choice(names))).body
    return True


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _change_result(tree: ast.Module, draw: random.Random) -> bool:
    """Return an argument or a view beside the result."""
    rows = [
        (function, row)
        for function in _functions(tree)
        for row in ast.walk(function)
        if isinstance(row, ast.Return) and row.value is not None
    ]
    if not rows:
        return False
    function, row = draw.choice(rows)
    assert row.value is not None
    value = ast.unparse(row.value)
    names = [one.arg for one in function.args.args if one.arg != "self"] or [value]
    form = draw.choice(("({r})[...], {r}", "({r}).clone()", "({r}).detach()", "({r}) + {v}"))
    row.value = ast.parse(form.format(r=value, v=draw.choice(names)), mode="eval").body
    return True


def _change_options(tree: ast.Module, draw: random.Random) -> bool:
    """Change an argument of ``torch.compile``."""
    calls = _calls(tree, frozenset({"compile"}))
    if not calls:
        return False
    call, name = draw.choice(calls), draw.choice([*OPTIONS])
    value = ast.parse(draw.choice(OPTIONS[name]), mode="eval").body
    before = {word.arg: ast.unparse(word.value) for word in call.keywords}
    call.keywords = [word for word in call.keywords if word.arg != name]
    call.keywords.append(ast.keyword(name, value))
    return before.get(name) != ast.unparse(value)


CHANGES: dict[str, Change] = {
    "dtype": _change_dtype,
    "layout": _change_layout,
    "size": _change_size,
    "order": _move_statement,
    "in place": _change_in_place,
    "result": _change_result,
    "options": _change_options,
}
