"""Remove the classes, functions and loops around a program, as a person would do by hand.

Each pass proposes whole programs with one change each, and keeps those for which the predicate
holds. Only the predicate judges a proposal. No proposal is made twice, and each removes a class, a
parameter or a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from reprokit.core.reduce.ast_edits import (
    Path,
    ReplacedNode,
    Test,
    call_arguments,
    copy_tree,
    keep_proposals,
    last_name,
    node_at,
    reads_name,
    replace_node,
    target_names,
    walk_places,
)
from reprokit.core.reduce.passes import inline_calls

_CONTAINERS = frozenset(
    {"ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Parameter", "Sequential"}
)


def inline_submodules(text: str, test: Test) -> str:
    """Replace a class by one of the modules that it contains."""
    return keep_proposals(text, _hoisted, test)


def inline_constants(text: str, test: Test) -> str:
    """Replace attributes and parameters that always have the same constant value by it, and drop
    unused parameters.
    """
    return keep_proposals(keep_proposals(text, _attributes, test), _parameters, test)


def unroll_loops(text: str, test: Test) -> str:
    """Replace a loop by its first iteration."""
    return keep_proposals(text, _turns, test)


def inline_functions(text: str, test: Test) -> str:
    """Replace a module without state by a function, and a function by its body where it is
    called.
    """
    return inline_calls.inline_calls(keep_proposals(text, _as_functions, test), test)


def _hoisted(tree: ast.Module) -> Iterator[ast.Module]:
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef)}
    known = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    for name, owner in reversed(classes.items()):
        init = _method(owner, "__init__")
        for part in ast.walk(init) if init is not None else ():
            is_function = isinstance(part, ast.Name) and part.id in known
            if is_function or (
                isinstance(part, ast.Call) and _is_constructor(part.func, classes.keys() - {name})
            ):
                assert isinstance(part, ast.expr)
                changed = copy_tree(tree)
                transformer = _Constructed(name, init, part)
                changed.body = [transformer.visit(row) for row in changed.body]
                if transformer.count:
                    changed.body = [
                        r for r in changed.body if not _is_unread_class(changed, r, name)
                    ]
                    yield changed


def _is_constructor(called: ast.expr, classes: set[str]) -> bool:
    if isinstance(called, ast.Name):
        return called.id in classes
    words = ast.unparse(called).split(".")
    return words[0] in ("nn", "torch") and words[-1][:1].isupper() and words[-1] not in _CONTAINERS


def _is_unread_class(tree: ast.Module, row: ast.stmt, name: str) -> bool:
    return isinstance(row, ast.ClassDef) and row.name == name and not reads_name(tree, name)


class _Constructed(ast.NodeTransformer):
    """Replaces calls of a class by a part of its ``__init__``, with the arguments of the call."""

    def __init__(self, name: str, init: ast.FunctionDef | None, part: ast.expr) -> None:
        self._name, self._init, self._part, self.count = name, init, part, 0

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return node if node.name == self._name else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not (
            isinstance(node.func, ast.Name)
            and node.func.id == self._name
            and self._init is not None
        ):
            return self.generic_visit(node)
        values = call_arguments(self._init, node, 1)
        if values is None:
            return node
        self.count += 1
        return ReplacedNode(values).visit(copy_tree(self._part))  # type: ignore[no-any-return]


def _attributes(tree: ast.Module) -> Iterator[ast.Module]:
    """Propose to inline ``SIZE``, ``Config.hidden`` and ``self.hidden`` if only one constant in the
    program has the name.
    """
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for row in node.body:
                if (
                    isinstance(row, ast.AnnAssign)
                    and isinstance(row.target, ast.Name)
                    and row.value is not None
                ):
                    values.setdefault(row.target.id, []).append(row.value)
                elif isinstance(row, ast.Assign) and isinstance(row.targets[0], ast.Name):
                    values.setdefault(row.targets[0].id, []).append(row.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            values.setdefault(node.targets[0].attr, []).append(node.value)
    stored = [
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    for index, row in enumerate(tree.body):
        name = target_names(row)
        if (
            isinstance(row, ast.Assign)
            and isinstance(row.value, ast.Constant)
            and stored.count(name) == 1
        ):
            changed = copy_tree(tree)
            del changed.body[index]
            yield ReplacedNode({name: row.value}).visit(changed)
    for name, assigned in values.items():
        if len(assigned) == 1 and isinstance(assigned[0], ast.Constant):
            changed = copy_tree(tree)
            _Attribute(name, assigned[0]).visit(changed)
            yield changed


class _Attribute(ast.NodeTransformer):
    """Replaces every ``x.name`` by a constant."""

    def __init__(self, name: str, value: ast.Constant) -> None:
        self._name, self._value = name, value

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr == self._name and isinstance(node.ctx, ast.Load):
            return copy_tree(self._value)
        return self.generic_visit(node)


def _parameters(tree: ast.Module) -> Iterator[ast.Module]:
    for path, node in walk_places(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        if node.args.kwarg and not any(reads_name(r, node.args.kwarg.arg) for r in node.body):
            changed = copy_tree(tree)
            node_at(changed, path).args.kwarg = None
            yield changed
        owner = node_at(tree, path[:-1])
        skip = int(isinstance(owner, ast.ClassDef))
        is_method = bool(skip) and node.name != "__init__"
        called = node.name if is_method or not skip else owner.name
        calls = _calls(tree, called, is_method)
        yield from _keyword_parameters(tree, path, node, called, calls)
        arguments = [call_arguments(node, call, skip) for call in calls]
        if not calls or any(a is None for a in arguments):
            yield from _defaulted(tree, path, node)
            continue
        for index, parameter in enumerate(node.args.args[skip:]):
            values = [a[parameter.arg] for a in arguments if a is not None]
            is_read = any(reads_name(row, parameter.arg) for row in node.body)
            is_fixed = (
                isinstance(values[0], ast.Constant) and len({ast.dump(v) for v in values}) == 1
            )
            if is_fixed or not is_read:
                changed = copy_tree(tree)
                function = node_at(changed, path)
                if is_read:
                    ReplacedNode({parameter.arg: values[0]}).visit(function)
                _without_parameter(function, index + skip)
                for call in _calls(changed, called, is_method):
                    del call.args[index : index + 1]
                    call.keywords = [k for k in call.keywords if k.arg != parameter.arg]
                yield changed


def _keyword_parameters(
    tree: ast.Module, path: Path, node: ast.FunctionDef, called: str, calls: list[ast.Call]
) -> Iterator[ast.Module]:
    """Propose to remove parameters that are given by name only, also of a function that passes on
    its other arguments, if they always have the same constant or nothing reads them.
    """
    for index, parameter in enumerate(node.args.kwonlyargs):
        default = node.args.kw_defaults[index]
        values: list[ast.expr | None] = []
        for call in calls:
            words = {k.arg: k.value for k in call.keywords}
            values.append(None if None in words else words.get(parameter.arg, default))
        constants = {ast.dump(v) for v in values if isinstance(v, ast.Constant)}
        is_read = any(reads_name(row, parameter.arg) for row in node.body)
        is_fixed = len(constants) == 1 and all(isinstance(v, ast.Constant) for v in values)
        if not calls or not (is_fixed or not is_read):
            continue
        changed = copy_tree(tree)
        function = node_at(changed, path)
        if is_read and values[0] is not None:
            ReplacedNode({parameter.arg: values[0]}).visit(function)
        del function.args.kwonlyargs[index], function.args.kw_defaults[index]
        for one in ast.walk(changed):
            if isinstance(one, ast.Call) and last_name(one.func) == called:
                one.keywords = [k for k in one.keywords if k.arg != parameter.arg]
        yield changed


def _defaulted(tree: ast.Module, path: Path, node: ast.FunctionDef) -> Iterator[ast.Module]:
    """Propose to remove an unused last parameter with a default from a function whose calls are not
    known, such as ``forward``.
    """
    if not node.args.defaults or not node.args.args:
        return
    name = node.args.args[-1].arg
    if any(reads_name(row, name) for row in node.body):
        return
    changed = copy_tree(tree)
    function = node_at(changed, path)
    _without_parameter(function, len(function.args.args) - 1)
    for call in ast.walk(changed):
        if isinstance(call, ast.Call):
            call.keywords = [k for k in call.keywords if k.arg != name]
    yield changed


def _calls(tree: ast.Module, name: str, is_method: bool) -> list[ast.Call]:
    """Return every call of a function, class or method; none if the name has other uses too."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    if is_method:
        methods = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
        uses = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == name]
        own = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == name]
        return own if len(uses) == len(own) and len(methods) == 1 and name != "forward" else []
    own = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == name]
    return own if len(reads_name(tree, name)) == len(own) else []


def _without_parameter(function: ast.FunctionDef, index: int) -> None:
    takes = function.args
    first = len(takes.args) - len(takes.defaults)
    if index >= first:
        del takes.defaults[index - first]
    del takes.args[index]


def _turns(tree: ast.Module) -> Iterator[ast.Module]:
    for path, node in walk_places(tree):
        for new in _unrolled(tree, node):
            changed = copy_tree(tree)
            replace_node(changed, path, new)
            yield changed


def _unrolled(tree: ast.Module, node: ast.AST) -> Iterator[list[ast.AST]]:
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) == 1:
        item = node.generators[0].target
        if isinstance(item, ast.Name) and not reads_name(node.elt, item.id):
            yield [ast.List([node.elt], ast.Load())]
    if (
        isinstance(node, ast.Call)
        and ast.unparse(node).startswith("next(iter([")
        and len(node.args) == 1
    ):
        listed = node.args[0].args[0] if isinstance(node.args[0], ast.Call) else None
        if isinstance(listed, ast.List) and listed.elts:
            yield [listed.elts[0]]
    if not isinstance(node, ast.For):
        return
    called = (
        node.iter.func.id
        if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name)
        else ""
    )
    arguments = node.iter.args if isinstance(node.iter, ast.Call) else []
    if (
        called == "enumerate"
        and isinstance(node.target, ast.Tuple)
        and len(node.target.elts) == 2
        and arguments
    ):
        counter, item = node.target.elts
        if isinstance(counter, ast.Name) and not reads_name(tree, counter.id):
            yield [ast.For(item, arguments[0], node.body, [])]
    first = ast.Call(
        ast.Name("next", ast.Load()), [ast.Call(ast.Name("iter", ast.Load()), [node.iter], [])], []
    )
    value: ast.expr = first
    if called == "range":
        value = arguments[0] if len(arguments) > 1 else ast.Constant(0)
    elif isinstance(node.iter, (ast.List, ast.Tuple)) and node.iter.elts:
        value = node.iter.elts[0]
    for function in tree.body:
        if (
            isinstance(function, ast.FunctionDef)
            and function.name == called
            and len(function.body) == 1
        ):
            row = function.body[0]
            if (
                isinstance(row, ast.Expr)
                and isinstance(row.value, ast.Yield)
                and row.value.value
                and not arguments
            ):
                value = row.value.value
    yield [ast.Assign([node.target], value), *node.body]


def _as_functions(tree: ast.Module) -> Iterator[ast.Module]:
    taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    taken |= {n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    for place, node in enumerate(tree.body):
        forward = _method(node, "forward") if isinstance(node, ast.ClassDef) else None
        if forward is None or not isinstance(node, ast.ClassDef) or not forward.args.args:
            continue
        if any(reads_name(row, forward.args.args[0].arg) for row in forward.body):
            continue
        name = (
            "repro"
            if "repro" not in taken
            else node.name.lower()
            if node.name.lower() not in taken
            else ""
        )
        if name:
            changed = copy_tree(tree)
            function = _method(changed.body[place], "forward")
            assert function is not None
            function.name = name
            _without_parameter(function, 0)
            changed.body[place] = function
            _Named(node.name, name).visit(changed)
            yield changed


class _Named(ast.NodeTransformer):
    """Replaces calls of a class by the name of a function."""

    def __init__(self, name: str, function: str) -> None:
        self._name, self._function = name, function

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == self._name:
            return ast.Name(self._function, ast.Load())
        return self.generic_visit(node)


def _method(node: ast.AST, name: str) -> ast.FunctionDef | None:
    rows = node.body if isinstance(node, ast.ClassDef) else []
    return next((r for r in rows if isinstance(r, ast.FunctionDef) and r.name == name), None)
