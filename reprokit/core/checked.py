"""Make a program that only shows wrong results to a comparison fail by itself: run it in both ways and assert."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .results import Difference

LOUD = {
    "recompile-limit": "torch._dynamo.config.fail_on_recompile_limit_hit = True",
    "recompile-storm": "torch._dynamo.config.error_on_recompile = True",
}
"""The setting with which torch itself fails, instead of going on."""


def loud(text: str, kind: str) -> str:
    """The program with the setting that makes a silent failure an error."""
    if kind == "graph-break":
        tree = ast.parse(text)
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "torch.compile":
                call.keywords = [k for k in call.keywords if k.arg != "fullgraph"]
                call.keywords.append(ast.keyword("fullgraph", ast.Constant(True)))
        return ast.unparse(tree) + "\n"
    if kind not in LOUD or LOUD[kind] in text:
        return text
    tree = ast.parse(text)
    place = next((i for i, n in enumerate(tree.body) if not isinstance(n, (ast.Import, ast.ImportFrom))), 0)
    tree.body.insert(place, ast.parse(LOUD[kind]).body[0])
    tree.body.insert(place, ast.parse("import torch._dynamo").body[0])
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


_RANDOM = ("rand", "dropout", "bernoulli", "normal", "uniform", "nn.", "empty")
"""What a text has that may draw random numbers, such as layers that make their own weights."""


def with_check(text: str, wrong: Sequence[Difference]) -> str:
    """The program as ``run(compile)``, called with ``torch.compile`` and without, and the two compared.

    ``wrong`` are the differences that it shows, in a comparison. Where the program has another form than a reduction
    gives it, or shows what no assertion of torch's compares, it comes back as it was.
    """
    tree = ast.parse(text)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "torch.compile"]
    if len(calls) != 1 or not calls[0].args or not wrong or wrong[0].what in ("aliasing", "missing", "value"):
        return text
    made = calls[0]
    options = [ast.unparse(a) for a in made.args[1:]] + [ast.unparse(k) for k in made.keywords]
    head = [n for n in tree.body if _stays(n)]
    main = [n for n in tree.body if not _stays(n)]
    if not main or not (found := _called(main, made)):
        return text
    rows, place, name, arguments = found
    returned = _returned(wrong, name, arguments)
    if not returned:
        return text
    made.func, made.args, made.keywords = ast.Name("compile", ast.Load()), made.args[:1], []
    if isinstance(rows[place], ast.Expr) and name in returned:
        rows[place] = ast.Assign([ast.Name(name, ast.Store())], rows[place].value, lineno=0)  # type: ignore[attr-defined]
    body = [ast.unparse(ast.fix_missing_locations(n)) for n in main]
    if any(word in text for word in _RANDOM) and "manual_seed" not in text:
        body.insert(0, "torch.manual_seed(0)")
    if returned == [name] and body[-1] == f"{name} = {ast.unparse(_value(rows[place]))}" and rows is main:
        body[-1] = f"return {ast.unparse(_value(rows[place]))}"
    else:
        body.append(f"return {', '.join(returned)}")
    compiled = f"lambda f: torch.compile(f, {', '.join(options)})" if options else "torch.compile"
    lines = [
        *(ast.unparse(n) for n in head),
        "def run(compile):",
        *(f"    {line}" for part in body for line in part.splitlines()),
        f"compiled = run({compiled})",
        "eager = run(lambda f: f)",
        _assertion(wrong[0].what, len(returned) == 1),
    ]
    return ast.unparse(ast.parse("\n".join(lines))) + "\n"


def _stays(node: ast.stmt) -> bool:
    """Definitions, imports and settings are no part of a run."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return True
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        return ast.unparse(node.targets[0]).startswith("torch.")
    return isinstance(node, ast.Expr) and "torch.set_default" in ast.unparse(node)


def _called(rows: list[ast.stmt], made: ast.Call) -> tuple[list[ast.stmt], int, str, list[str]] | None:
    """Where the compiled callable is called: the rows, the place in them, the result's name and the arguments' names."""
    names: set[str] = set()
    for place, node in enumerate(rows):
        if isinstance(node, ast.With) and (found := _called(node.body, made)):
            return found
        value = _value(node)
        if value is made and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.add(node.targets[0].id)
            continue
        is_call = isinstance(value, ast.Call) and (
            value.func is made or (isinstance(value.func, ast.Name) and value.func.id in names)
        )
        if is_call and isinstance(value, ast.Call):
            arguments = [a.id for a in value.args if isinstance(a, ast.Name)]
            if isinstance(node, ast.Assign):
                target = node.targets[0]
                return (rows, place, target.id, arguments) if isinstance(target, ast.Name) else None
            return rows, place, "out", arguments
    return None


def _value(node: ast.stmt) -> ast.expr:
    return node.value if isinstance(node, (ast.Expr, ast.Assign)) else ast.Constant(None)


def _returned(wrong: Sequence[Difference], name: str, arguments: list[str]) -> list[str]:
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
