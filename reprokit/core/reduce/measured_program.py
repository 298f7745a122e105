"""Programs whose calls are measured: the calls as the function ``once``, and the measurement that
makes the program fail by itself.

In a trial run, reprokit measures ``once``. The repro measures it with torch alone. Both run it in
eager through ``torch.compiler.set_stance("force_eager")``, and then compiled. For time, ``once``
gets the eager or the compiled function instead, because a call of compiled code takes longer in
this stance than one of the eager function.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from reprokit.core.records.call_growth import GrowingSeries
from reprokit.core.records.memory_use import MIN_RATIO
from reprokit.core.records.speed import Speed
from reprokit.core.reduce import ast_edits, main_part
from reprokit.core.shared.contract import growth_events, measured_kinds

ONCE = "once"
"""The function with the calls."""


def with_once(text: str, kind: str) -> str:
    """Return the program with its calls in the function ``once``; unchanged if it has one, and
    empty if it has no calls.

    For a peak of the memory, the function also makes the model and the inputs, because these count.
    For time, the program must have one compiled function, and both are the variable ``sides``.
    """
    tree = ast.parse(text)
    if any(isinstance(n, ast.FunctionDef) and n.name == ONCE for n in tree.body):
        return text
    parts = main_part.split_program(tree)
    before: list[ast.stmt] = []
    if kind != measured_kinds.PEAK_MEMORY:
        before, parts.main = _split_at_calls(parts)
    sides, argument = "", ""
    if kind == measured_kinds.SLOWER:
        made = ast_edits.compile_calls(ast.Module(before, []))
        values = {
            id(n.value): ast_edits.target_names(n) for n in before if isinstance(n, ast.Assign)
        }
        argument = values.get(id(made[0]), "") if len(made) == 1 and made[0].args else ""
        if not argument:
            return ""
        sides = f"sides = ({ast.unparse(made[0].args[0])}, {argument})"
    if not parts.main:
        return ""
    assigned = set[str]().union(*map(main_part.gives, before))
    own = set[str]().union(*map(main_part.gives, parts.main))
    names = sorted({*parts.shared(), *(assigned & own)})
    once = [
        f"def {ONCE}({argument}):",
        *(f"    global {', '.join(names)}" for _ in names[:1]),
        *(f"    {line}" for node in parts.main for line in ast.unparse(node).splitlines()),
    ]
    rows = [*map(ast.unparse, (*parts.head, *before)), sides, *once, f"{ONCE}({argument})"]
    return ast.unparse(ast.parse("\n".join(rows))) + "\n"


def _split_at_calls(parts: main_part.Parts) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Return the statements before the first call of compiled code, and the others."""
    compiled: set[str] = set()
    for index, node in enumerate(parts.main):
        made = ast_edits.compile_calls(ast.Module([node], []))
        if isinstance(node, ast.Assign) and node.value in made:
            compiled |= main_part.gives(node)
        elif made or _calls(node, compiled, parts.head):
            named = _name_compiled(node, made) if len(made) == 1 else []
            return [*parts.main[:index], *named], parts.main[index:]
    return parts.main, []


def _name_compiled(node: ast.stmt, made: list[ast.Call]) -> list[ast.stmt]:
    """Replace the call of ``torch.compile`` in a statement by a variable, and return the statement
    that assigns it; no statement if it is not outside of blocks.
    """
    for path, found in ast_edits.walk_places(node):
        if found is made[0] and isinstance(node, (ast.Expr, ast.Assign)):
            ast_edits.replace_node(node, path, [ast.Name("compiled", ast.Load())])
            return [ast.Assign([ast.Name("compiled", ast.Store())], made[0], lineno=0)]
    return []


def _calls(node: ast.stmt, compiled: Collection[str], head: Collection[ast.stmt]) -> bool:
    """Return whether a statement reads a compiled function, or a function that reads one."""
    known = set(compiled)
    for definition in head:  # a function usually stands after those that it calls
        is_compiling = "torch.compile" in ast.unparse(definition)
        if isinstance(definition, (ast.FunctionDef, ast.ClassDef)) and (
            is_compiling or main_part.free_names(definition) & known
        ):
            known.add(definition.name)
    return any(isinstance(n, ast.Name) and n.id in known for n in ast.walk(node))


def with_measurement(
    text: str, kind: str, grown: GrowingSeries | None = None, speed: Speed | None = None
) -> str:
    """Return the program with a measurement and an assertion that fails; unchanged if it has one,
    or if torch and Python cannot measure it in a few lines.

    ``grown`` is what grows with each call, and ``speed`` how long calls take.
    """
    changed = with_once(text, kind)
    if not changed or changed == text:
        return text
    if kind == measured_kinds.PEAK_MEMORY:
        is_on_gpu = ".cuda" in text or "'cuda" in text
        rows = (_PEAK_OF_GPU if is_on_gpu else _PEAK) + _COMPARED
    elif kind == measured_kinds.SLOWER and speed is not None:
        # between 1 and the measured ratio, so that the noise of neither side reaches it
        most = max(speed.ratio.value, MIN_SLOWER) ** 0.5
        count = max(1, round(MIN_BLOCK_S / max(speed.eager_s, 1e-7)))
        rows = _TIMES.format(count=count, most=f"{most:.2f}")
    elif grown is not None and (counted := _counted(grown)):
        words = f"objects of {grown.name}" if grown.is_type else grown.name
        stays = "b <= a" if grown.slope > 0 else "b >= a"
        rows = _GROWTH.format(counted=counted, words=words, stays=stays)
    else:
        return text
    tree = ast.parse(changed)
    del tree.body[-1]  # the measurement calls it
    found = {ast.unparse(n) for n in tree.body}
    imports = [f"import {name}" for name in _MODULES if f"{name}." in rows]
    new = ast.parse("\n".join(row for row in imports if row not in found)).body
    tree.body = [*new, *tree.body, *ast.parse(rows).body]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _counted(grown: GrowingSeries) -> str:
    """Return an expression that counts what grows; empty if it needs more than a line."""
    if grown.is_type:
        name = grown.name.rpartition(".")[2]
        return f"sum(type(o).__name__ == {name!r} for o in gc.get_objects())"
    return _COUNTS.get(grown.name, "")


_MODULES = ("gc", "itertools", "os", "sys", "timeit", "torch")
_COMPARED = f"""
with torch.compiler.set_stance("force_eager"):
    eager_peak = peak()
compiled_peak = peak()
print(f"{{compiled_peak:,}} bytes compiled, {{eager_peak:,}} in eager")
assert compiled_peak <= {MIN_RATIO} * eager_peak, f"{{compiled_peak / eager_peak:.2f}} times"
"""
_PEAK = f"""
def peak():
    {ONCE}()
    with torch.profiler.profile(profile_memory=True) as profile:
        {ONCE}()
    events = sorted(profile.profiler.kineto_results.events(), key=lambda e: e.start_ns())
    return max(itertools.accumulate(e.nbytes() for e in events if e.name() == "[memory]"))
"""
_PEAK_OF_GPU = f"""
def peak():
    {ONCE}()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    {ONCE}()
    return torch.cuda.max_memory_allocated() - before
"""
"""What the first call compiles is not measured."""
_GROWTH = f"""
def counts():
    for _ in range(6):
        for _ in range(20):
            {ONCE}()
        gc.collect()
        yield {{counted}}

with torch.compiler.set_stance("force_eager"):
    print("in eager, after each 20 calls:", *counts())
after = list(counts())
print("compiled:", *after)
assert any({{stays}} for a, b in itertools.pairwise(after[1:])), "{{words}} change with each call"
"""
"""The first calls compile, and fill caches."""
_TIMES = f"""
times = [], []
for _ in range(200):
    for side, seconds in zip(sides, times):
        {ONCE}(side)
        seconds.append(timeit.timeit(lambda: {ONCE}(side), number={{count}}))
eager_s, compiled_s = (min(seconds) / {{count}} for seconds in times)
print(f"{{{{1e6 * compiled_s:.1f}}}} microseconds compiled, {{{{1e6 * eager_s:.1f}}}} in eager")
assert compiled_s <= {{most}} * eager_s, f"{{{{compiled_s / eager_s:.2f}}}} times"
"""
"""The sides take turns, and the shortest time counts: other programs only ever add to it."""
MIN_SLOWER, MIN_BLOCK_S = 1.05, 0.0005
_COUNTS = {
    growth_events.TENSORS: "sum(o.nbytes for o in gc.get_objects() if torch.is_tensor(o))",
    growth_events.GPU: "torch.cuda.memory_allocated()",
    growth_events.ENTRIES: "torch._dynamo.utils.counters['stats']['unique_graphs']",
    growth_events.GUARDS: "torch._dynamo.utils.counters['stats']['unique_graphs']",
    growth_events.OBJECTS: "len(gc.get_objects())",
    growth_events.DESCRIPTORS: "len(os.listdir('/proc/self/fd'))",
    growth_events.BLOCKS: "sys.getallocatedblocks()",
    growth_events.NONE: "sys.getrefcount(None)",
}
"""How a program counts what grows, by its name; the others need more than a line."""
