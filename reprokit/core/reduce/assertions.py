"""Make a program with wrong results fail by itself, with an assertion that compares them."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence

from reprokit.core.reduce import ast_edits, main_part
from reprokit.core.shared.result_comparison import MISSING, OF_STATE, Difference

_SAME_RANDOM = """import torch._inductor.config
torch._inductor.config.fallback_random = True"""
_RANDOM = ("rand", "dropout", "bernoulli", "normal", "uniform", "nn.", "empty")
"""Parts of a program that may draw random numbers, such as layers with weights."""
SEED = 0
_OF_MODULE = re.compile(r"(gradient of|buffer) (\w+)\.(.+)")
_OF_ARGUMENT = re.compile(r"gradient of argument\[(\d+)\](?: #\d+)?$")
_ARGUMENT = re.compile(r"argument\[(\d+)\]")
ALIASING = "aliasing"
"""The difference of a result that has the memory of an argument in only one of the two runs."""
_ALL = "results"
"""The variable with the results of several calls."""


def draws_random(text: str) -> bool:
    """Return whether the program may draw random numbers and sets no seed."""
    return any(word in text for word in _RANDOM) and "manual_seed" not in text


def with_check(
    text: str, wrong: Sequence[Difference], is_random: bool = False, seed: int = SEED
) -> str:
    """Return the program as a function ``run(compile)`` that is called with ``torch.compile`` and
    without, and an assertion that compares the results.

    ``wrong`` are the differences that a comparison found. A program that does not have the form of
    a reduced one, or whose differences no assertion of torch compares, is returned unchanged. A
    compiled program that draws random numbers draws those of eager; both runs begin with ``seed``.
    """
    tree = ast.parse(text)
    calls = ast_edits.compile_calls(tree)
    is_shown = bool(wrong) and _is_compared(wrong[0])
    if is_shown and (checked := _check_ahead(tree, wrong, seed)):
        return checked
    if len(calls) != 1 or not calls[0].args or not is_shown:
        return text
    made = calls[0]
    options = [ast.unparse(a) for a in made.args[1:]] + [ast.unparse(k) for k in made.keywords]
    made.func, made.args, made.keywords = ast.Name("compile", ast.Load()), made.args[:1], []
    parts = main_part.split_program(tree)
    head, main = parts.head, parts.main
    _rename_hiding(main, {getattr(n, "name", "") for n in head})
    owners = _owners(wrong, made, [*head, *main])
    shared = set(owners.values()) & _assigned(head)
    if "" in owners.values() or (shared and any(d.name.startswith("buffer") for d in wrong)):
        return text  # it has no name, or both runs would change the same buffer
    if not main or not (written := _with_return(main, made, wrong, owners)):
        return text
    body, is_one = written
    body[:0] = [f"{name}.zero_grad()" for name in sorted(shared)]
    if draws_random(text):
        body.insert(0, f"torch.manual_seed({seed})")
    if names := parts.shared():
        body.insert(0, f"global {', '.join(names)}")  # each run makes its own objects
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


_NUMBER = re.compile(r"-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?|inf|nan)|True|False")


def _is_compared(one: Difference) -> bool:
    """Return whether an assertion of torch compares what differs: a tensor, or a plain number."""
    if one.what == "value":
        return all(_NUMBER.fullmatch(text) for text in (one.expected, one.got))
    if one.what == ALIASING:
        return one.name.startswith("output") and _aliased(one) is not None
    return one.what != MISSING or _is_lost_gradient(one)


def _aliased(one: Difference) -> int | None:
    """Return the index of the argument whose memory a result has in one of the two runs."""
    found = _ARGUMENT.fullmatch(one.expected) or _ARGUMENT.fullmatch(one.got)
    return int(found[1]) if found else None


def _is_lost_gradient(one: Difference) -> bool:
    """Return whether a gradient is None in one of the two runs."""
    return one.what == MISSING and one.name.startswith("gradient")


_AHEAD = re.compile(r"torch\.export\.export|torch\.compile")
_LOADED = ("aoti_load_package", "module", "aot_compile")


def _check_ahead(tree: ast.Module, wrong: Sequence[Difference], seed: int) -> str:
    """Return the program with an assertion, if it compiles a model ahead of one call; else empty.

    The model itself is called with the same arguments.
    """
    compiled = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and _AHEAD.fullmatch(ast.unparse(n.func)) and n.args
    ]
    is_output = all(d.name.startswith("output") and d.call == 0 for d in wrong)
    if len(compiled) != 1 or wrong[0].what == "signed-zero" or not is_output:
        return ""
    names = {
        ast_edits.target_names(n)
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign) and _is_loaded(n.value)
    }
    blocks = [b for n in ast.walk(tree) if isinstance(b := getattr(n, "body", None), list)]
    for block, index in [(b, i) for b in blocks for i in range(len(b))]:
        call = _value(block[index])
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "print" and call.args:
            call = call.args[0]
        if not isinstance(call, ast.Call) or not (
            _is_loaded(call.func) or (isinstance(call.func, ast.Name) and call.func.id in names)
        ):
            continue
        # what a module's forward.aot_compile returns takes the module first
        takes_model = ".forward.aot_compile(" in ast.unparse(call.func)
        given = ", ".join(
            ast.unparse(a) for a in (*call.args[1 if takes_model else 0 :], *call.keywords)
        )
        model = ast.unparse(compiled[0].args[0])
        eager = f"{model}({given})"
        block[index : index + 1] = ast.parse(
            f"compiled = {ast.unparse(call)}\neager = {eager}\n{_assertion(wrong[0].what, True)}"
        ).body
        if draws_random(ast.unparse(tree)):
            start = ast.parse(f"torch.manual_seed({seed})").body
            rows = enumerate(tree.body)
            index = next((i for i, n in rows if not main_part.stays(n)), len(tree.body))
            tree.body[index:index] = start
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return ""


def _is_loaded(node: ast.expr) -> bool:
    """Return whether a node is a model that was compiled before its call."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _LOADED
    )


def _with_return(
    main: list[ast.stmt],
    made: ast.Call,
    wrong: Sequence[Difference],
    owners: Mapping[str, str],
) -> tuple[list[str], bool] | None:
    """Return the lines of ``run``, and whether it returns one result; None if the wrong values
    cannot be returned.
    """
    names = {
        ast_edits.target_names(n)
        for row in main
        for n in ast.walk(row)
        if isinstance(n, ast.Assign) and n.value is made
    }
    _name_result(main, made, names)
    count = sum(_is_call(n, made, names) for row in main for n in ast.walk(row))
    is_later = wrong[0].call > 0 and not wrong[0].name.startswith(OF_STATE)
    if count != 1 or is_later or not (call := _called(main, made, names)):
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
    rows, place, name, arguments = call
    if not (returned := _returned(wrong, name, arguments, owners)):
        return None
    if isinstance(rows[place], ast.Expr) and any(re.match(rf"{name}\b", r) for r in returned):
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


def _rename_hiding(main: list[ast.stmt], defined: set[str]) -> None:
    """Rename the variables that hide a definition, such as ``f = torch.compile(f)``: in a function
    the definition could not be read any more.
    """
    renamed: dict[str, str] = {}
    for row in main:
        names = [n for n in ast.walk(row) if isinstance(n, ast.Name)]
        for name in names:
            if isinstance(name.ctx, ast.Load):
                name.id = renamed.get(name.id, name.id)
        for name in names:
            if isinstance(name.ctx, ast.Store) and name.id in defined:
                renamed[name.id] = f"compiled_{name.id}"
                name.id = renamed[name.id]


def _name_result(rows: list[ast.stmt], made: ast.Call, names: Collection[str]) -> None:
    """Give a name to the result of a call that is a part of a statement, such as
    ``f(x).backward()`` and ``loss(f(x), y).backward()``.
    """
    for index, node in enumerate(rows):
        if isinstance(node, ast.With):
            _name_result(node.body, made, names)
        if not isinstance(node, (ast.Expr, ast.Assign)):
            continue
        found = [
            (path, n) for path, n in ast_edits.walk_places(node.value) if _is_call(n, made, names)
        ]
        if len(found) == 1:
            path, call = found[0]
            ast_edits.replace_node(node.value, path, [ast.Name("out", ast.Load())])
            assert isinstance(call, ast.expr)
            if isinstance(node, ast.Expr) and isinstance(node.value, (ast.GeneratorExp, ast.Name)):
                del rows[index]  # nothing of it runs
            rows.insert(index, ast.Assign([ast.Name("out", ast.Store())], call, lineno=0))
            return


def _rows(main: list[ast.stmt]) -> list[str]:
    return [ast.unparse(ast.fix_missing_locations(n)) for n in main]


def _owners(
    wrong: Sequence[Difference], made: ast.Call, rows: Sequence[ast.stmt]
) -> dict[str, str]:
    """Return the variable of each module whose gradients or buffers differ, by the name that the
    comparison gives to it; empty for one without a variable.
    """
    compiled = ast.unparse(made.args[0])
    is_function = any(isinstance(n, ast.FunctionDef) and n.name == compiled for n in rows)
    known = _assigned(rows)
    titles = {match[2] for d in wrong if (match := _OF_MODULE.fullmatch(d.name))}
    found = {t: compiled if t == "model" and not is_function else t for t in titles}
    return {title: name if name in known else "" for title, name in found.items()}


def _assigned(rows: Sequence[ast.stmt]) -> set[str]:
    """Return the variables that statements assign outside of functions and classes."""
    return set[str]().union(*(main_part.gives(n) for n in rows if not ast_edits.is_definition(n)))


def _is_call(node: ast.AST, made: ast.Call, names: Collection[str]) -> bool:
    """Return whether a node calls the compiled callable; ``names`` are the names of it."""
    if not isinstance(node, ast.Call):
        return False
    return node.func is made or (isinstance(node.func, ast.Name) and node.func.id in names)


def _called(
    rows: list[ast.stmt], made: ast.Call, names: Collection[str]
) -> tuple[list[ast.stmt], int, str, list[str]] | None:
    """Find the call of the compiled callable: the block, the index in it, the name of the result
    and the names of the arguments.
    """
    for index, node in enumerate(rows):
        if isinstance(node, ast.With) and (call := _called(node.body, made, names)):
            return call
        value = _value(node)
        if _is_call(value, made, names) and isinstance(value, ast.Call):
            name = ast_edits.target_names(node) or ("out" if isinstance(node, ast.Expr) else "")
            return (rows, index, name, [getattr(a, "id", "") for a in value.args]) if name else None
    return None


def _collect(rows: list[ast.stmt], made: ast.Call, names: Collection[str]) -> int:
    """Append the result of each call to a list, also in a loop, and return the number of calls."""
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


def _returned(
    wrong: Sequence[Difference], name: str, arguments: list[str], owners: Mapping[str, str]
) -> list[str]:
    """Return the expressions for what differs."""
    if wrong[0].what == ALIASING:
        index, path = _aliased(wrong[0]), wrong[0].name.removeprefix("output")
        owner = next(iter(arguments[index : index + 1]), "") if index is not None else ""
        memory = "{}.untyped_storage().data_ptr()"
        pair = f"{memory.format(name + path)} == {memory.format(owner)}"
        return [pair] if owner else []
    kinds, of_state = set[str](), list[str]()
    known = [a for a in arguments if a]
    for one in wrong:
        place = _OF_ARGUMENT.match(one.name)
        if place and arguments[int(place[1]) :][:1] not in ([], [""]):
            of_state.append(f"{arguments[int(place[1])]}.grad")
            continue
        if (match := _OF_MODULE.fullmatch(one.name)) is None:
            kinds.add(one.name.split("[")[0].split(" ")[0])
            continue
        what, title, key = match.groups()
        kind = "buffer" if what == "buffer" else "parameter"
        is_plain = all(part.isidentifier() for part in key.split("."))
        owner = f"{owners[title]}.{key}" if is_plain else f"{owners[title]}.get_{kind}({key!r})"
        of_state.append(owner if what == "buffer" else f"{owner}.grad")
    names = [name] if "output" in kinds else []
    if "argument" in kinds:
        names += known
    if "gradient" in kinds:
        names += [f"{a}.grad" for a in known]
    return [*names, *dict.fromkeys(of_state)]


def _assertion(what: str, is_one: bool) -> str:
    if what == ALIASING:
        return "assert compiled == eager"
    if what == MISSING:
        if is_one:
            return "assert (compiled is None) == (eager is None)"
        return "assert [g is None for g in compiled] == [g is None for g in eager]"
    if what == "signed-zero":
        pairs = "[(compiled, eager)]" if is_one else "zip(compiled, eager)"
        return f"assert all(torch.equal(torch.signbit(a), torch.signbit(b)) for a, b in {pairs})"
    extra = ", check_stride=True" if what == "stride" else ""
    return f"torch.testing.assert_close(compiled, eager, equal_nan=True{extra})"
