"""Make a program that only shows wrong results to a comparison fail by itself: run it in both ways
and assert.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from reprokit.core.records.recompiles import BROKEN, STORM, TOLD
from reprokit.core.reduce import ast_edits
from reprokit.core.shared.result_comparison import Difference

LOUD = {
    "recompile-limit": ("torch._dynamo", "torch._dynamo.config.fail_on_recompile_limit_hit = True"),
    "cudagraph-skip": (
        "torch._inductor.config",
        "torch._inductor.config.triton.cudagraph_or_error = True",
    ),
}
"""The module and the setting with which torch itself fails, instead of going on."""
COUNTED = "assert torch._dynamo.utils.counters['stats']['unique_graphs'] < {}, {!r}"
"""Torch's own error for a recompile comes with the first, which is none yet that anybody would
report.
"""


UNBROKEN = (
    "assert not any(torch._dynamo.utils.counters[k] for k in ('graph_break', 'unimplemented')),"
    " {!r}"
)
"""The second counter has the breaks at which Dynamo gives a function up."""


def fail_loudly(text: str, kind: str, graphs: int = 1) -> str:
    """The program with what makes a silent failure an error; ``graphs`` it has without the
    recompiles of a storm.
    """
    if kind == "graph-break":
        tree = ast.parse(text)
        for call in ast_edits.compiles(tree):
            call.keywords = [k for k in call.keywords if k.arg != "fullgraph"]
            call.keywords.append(ast.keyword("fullgraph", ast.Constant(True)))
        return ast.unparse(tree) + "\n"
    if kind == "recompile-storm" and TOLD not in text:
        return ast.unparse(ast.parse(f"{text}\n{COUNTED.format(graphs + STORM, TOLD)}")) + "\n"
    module, setting = LOUD.get(kind, ("", ""))
    if not setting or setting in text:
        return text
    tree = ast.parse(text)
    place = ast_edits.behind_imports(tree)
    tree.body.insert(place, ast.parse(setting).body[0])
    tree.body.insert(place, ast.parse(f"import {module}").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def assert_unbroken(text: str) -> str:
    """The program with an assertion that it has no graph break, for those that a whole graph fails
    in another way.
    """
    return (
        text
        if BROKEN in text
        else ast.unparse(ast.parse(f"{text}\n{UNBROKEN.format(BROKEN)}")) + "\n"
    )


_SAME_RANDOM = """import torch._inductor.config
torch._inductor.config.fallback_random = True"""
_RANDOM = ("rand", "dropout", "bernoulli", "normal", "uniform", "nn.", "empty")
"""What a text has that may draw random numbers, such as layers that make their own weights."""
SEED = 0
_ALL = "results"
"""What each call gave, of several."""


def draws_random(text: str) -> bool:
    """The program may draw random numbers, and sets no seed."""
    return any(word in text for word in _RANDOM) and "manual_seed" not in text


def with_check(
    text: str, wrong: Sequence[Difference], is_random: bool = False, seed: int = SEED
) -> str:
    """The program as ``run(compile)``, called with ``torch.compile`` and without, and the two
    compared.

    ``wrong`` are the differences that it shows, in a comparison. Where the program has another form
    than a reduction gives it, or shows what no assertion of torch's compares, it comes back as it
    was. A program that draws random numbers when it is called draws those of eager when compiled;
    both runs begin with ``seed``.
    """
    tree = ast.parse(text)
    calls = ast_edits.compiles(tree)
    is_shown = bool(wrong) and wrong[0].what not in ("aliasing", "missing", "value")
    if len(calls) != 1 or not calls[0].args or not is_shown:
        return text
    made = calls[0]
    options = [ast.unparse(a) for a in made.args[1:]] + [ast.unparse(k) for k in made.keywords]
    made.func, made.args, made.keywords = ast.Name("compile", ast.Load()), made.args[:1], []
    defined = [n for n in tree.body if _stays(n)]
    read = set[str]().union(*map(_free, defined))
    head = [
        n for n in tree.body if _stays(n) or _gives(n) & read
    ]  # what functions read stays where they can read it
    main = [n for n in tree.body if n not in head]
    if not main or not (written := _with_return(main, made, wrong)):
        return text
    body, is_one = written
    if draws_random(text):
        body.insert(0, f"torch.manual_seed({seed})")
    compiled = f"lambda f: torch.compile(f, {', '.join(options)})" if options else "torch.compile"
    if is_random:
        head = [*ast.parse(_SAME_RANDOM).body, *head]
    lines = [
        *(ast.unparse(n) for n in head),
        "def run(compile):",
        *(f"    {line}" for part in body for line in part.splitlines()),
        f"compiled = run({compiled})",
        "eager = run(lambda f: f)",
        _assertion(wrong[0].what, is_one),
    ]
    return ast.unparse(ast.parse("\n".join(lines))) + "\n"


def _with_return(
    main: list[ast.stmt], made: ast.Call, wrong: Sequence[Difference]
) -> tuple[list[str], bool] | None:
    """The rows of ``run``, and whether it returns one result; None where what is wrong cannot be
    returned.
    """
    names = {
        ast_edits.target_names(n)
        for row in main
        for n in ast.walk(row)
        if isinstance(n, ast.Assign) and n.value is made
    }
    count = sum(_is_call(n, made, names) for row in main for n in ast.walk(row))
    if count != 1 or wrong[0].call > 0 or not (found := _called(main, made, names)):
        is_free = not any(
            isinstance(n, ast.Name) and n.id == _ALL for row in main for n in ast.walk(row)
        )
        if (
            is_free
            and wrong[0].name.startswith("output")
            and _collect(main, made, names) == count > 0
        ):
            return [f"{_ALL} = []", *_rows(main), f"return {_ALL}"], False
        return None
    rows, place, name, arguments = found
    if not (returned := _returned(wrong, name, arguments)):
        return None
    if isinstance(rows[place], ast.Expr) and name in returned:
        value = rows[place].value  # type: ignore[attr-defined]
        rows[place] = ast.Assign([ast.Name(name, ast.Store())], value, lineno=0)
    body = _rows(main)
    if (
        returned == [name]
        and body[-1] == f"{name} = {ast.unparse(_value(rows[place]))}"
        and rows is main
    ):
        body[-1] = f"return {ast.unparse(_value(rows[place]))}"
    else:
        body.append(f"return {', '.join(returned)}")
    return body, len(returned) == 1


def _rows(main: list[ast.stmt]) -> list[str]:
    return [ast.unparse(ast.fix_missing_locations(n)) for n in main]


def _gives(node: ast.stmt) -> set[str]:
    """The names that a row of the program assigns."""
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _free(node: ast.stmt) -> set[str]:
    """The names that a definition reads and does not give itself."""
    own = _gives(node) | {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    } - own


def _stays(node: ast.stmt) -> bool:
    """Definitions, imports and settings are no part of a run."""
    if ast_edits.defines(node):
        return True
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        return ast.unparse(node.targets[0]).startswith("torch.")
    return isinstance(node, ast.Expr) and "torch.set_default" in ast.unparse(node)


def _is_call(node: ast.AST, made: ast.Call, names: Collection[str]) -> bool:
    """The compiled callable is called; ``names`` are those that it is given."""
    if not isinstance(node, ast.Call):
        return False
    return node.func is made or (isinstance(node.func, ast.Name) and node.func.id in names)


def _called(
    rows: list[ast.stmt], made: ast.Call, names: Collection[str]
) -> tuple[list[ast.stmt], int, str, list[str]] | None:
    """Where the compiled callable is called: the rows, the place in them, the result's name and the
    arguments' names.
    """
    for place, node in enumerate(rows):
        if isinstance(node, ast.With) and (found := _called(node.body, made, names)):
            return found
        value = _value(node)
        if _is_call(value, made, names) and isinstance(value, ast.Call):
            name = ast_edits.target_names(node) or ("out" if isinstance(node, ast.Expr) else "")
            return (
                (rows, place, name, [a.id for a in value.args if isinstance(a, ast.Name)])
                if name
                else None
            )
    return None


def _collect(rows: list[ast.stmt], made: ast.Call, names: Collection[str]) -> int:
    """Keep what each call gives, also in a loop, and say how many could be kept."""
    count, new = 0, list[ast.stmt]()
    for node in rows:
        value, name = _value(node), ast_edits.target_names(node)
        if _is_call(value, made, names) and (name or isinstance(node, ast.Expr)):
            kept = ast.Name(name, ast.Load()) if name else value
            place = ast.Attribute(ast.Name(_ALL, ast.Load()), "append", ast.Load())
            new += [*([node] if name else []), ast.Expr(ast.Call(place, [kept], []))]
            count += 1
            continue
        if isinstance(node, (ast.For, ast.While, ast.If, ast.With)):
            count += _collect(node.body, made, names)
        new.append(node)
    rows[:] = new
    return count


def _value(node: ast.stmt) -> ast.expr:
    return node.value if isinstance(node, (ast.Expr, ast.Assign)) else ast.Constant(None)


def _returned(wrong: Sequence[Difference], name: str, arguments: list[str]) -> list[str]:
    if any(d.name.startswith(("gradient of model", "buffer")) for d in wrong):
        return []
    kinds = {d.name.split("[")[0].split(" ")[0] for d in wrong}
    found = [name] if "output" in kinds else []
    if "argument" in kinds:
        found += arguments
    if "gradient" in kinds:
        found += [f"{a}.grad" for a in arguments]
    return found


def _assertion(what: str, is_one: bool) -> str:
    if what == "signed-zero":
        pairs = "[(compiled, eager)]" if is_one else "zip(compiled, eager)"
        return f"assert all(torch.equal(torch.signbit(a), torch.signbit(b)) for a, b in {pairs})"
    extra = ", check_stride=True" if what == "stride" else ""
    return f"torch.testing.assert_close(compiled, eager, equal_nan=True{extra})"
