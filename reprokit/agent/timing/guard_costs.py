"""Measure which guards of a compiled function take the time.

Dynamo passes each tree of guards that it builds to a function that times it once, together with the
values that the guards check. The trees are kept there. Later, a tree is timed as a whole, and again
without the guards of one line: the difference is the cost of that line.
"""

from __future__ import annotations

import collections
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...core.shared import cuts
from ..record import graph_recorder
from ..torch_hooks import symbols

SYMBOL = "torch._dynamo.guards:profile_guard_manager"
MAX_TREES, MAX_LINES = 50, 12
"""Limits of what is timed: the trees, and the lines of the largest tree with the most guards."""
ROUNDS, ROUND_S = 7, 0.001
_LINE = re.compile(r"# (?P<file>[^\s#]+\.py):(?P<line>\d+) in (?P<function>\S+)")
"""The end of what Dynamo writes about a guard."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_trees: list[tuple[Any, Any]] = []


def keep_trees() -> None:
    """Keep each tree of guards that Dynamo builds from now on, with the values that it checks.

    The values stay alive, so this is only for a process that measures.
    """
    if not symbols.has_symbol(SYMBOL):
        return
    from torch._dynamo import guards

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def profile_guard_manager(root: Any, values: Any, *args: Any) -> Any:
            _trees.append((root, values))
            return real(root, values, *args)

        return profile_guard_manager

    symbols.wrap_function(guards, "profile_guard_manager", make_hook)


def slowest_guards() -> dict[str, Any]:
    """Return the line whose guards cost most, in the tree that costs most.

    The keys are ``guards`` (their number in the tree), ``tree_s`` (the seconds of one check of it),
    ``line_guards``, ``line_s``, ``code`` (one of these guards), ``where`` (the line) and
    ``settings`` (of torch, that make them cheaper). Empty if there is no tree, or it cannot be
    timed.
    """
    timed = [(_check_s(root, values), root, values) for root, values in _trees[-MAX_TREES:]]
    timed = [row for row in timed if row[0] > 0]
    if not timed or not hasattr(timed[0][1], "clone_manager"):
        return {}
    tree_s, root, values = max(timed, key=lambda row: row[0])
    lines = _lines_of_tree(root)
    largest = sorted(lines, key=lambda where: len(lines[where]), reverse=True)[:MAX_LINES]
    costs = {
        where: _cost_of(root, values, {source for source, _ in lines[where]}, tree_s)
        for where in largest
    }
    where = max(costs, key=lambda place: costs[place], default="")
    return {
        "guards": sum(map(len, lines.values())),
        "tree_s": tree_s,
        "line_guards": len(lines.get(where, ())),
        "line_s": costs.get(where, 0.0),
        "code": cuts.cut_head(_typical_guard([code for _, code in lines.get(where, ())]), 200),
        "where": _whole_path(where),
        "settings": _settings(lines.get(where, ())),
    }


def _typical_guard(guards: Sequence[str]) -> str:
    """Return the first guard of the most frequent form, in which only numbers differ."""
    forms = collections.Counter(_NUMBER.sub("#", guard) for guard in guards)
    form = max(forms, key=lambda one: forms[one], default="")
    return next((guard for guard in guards if _NUMBER.sub("#", guard) == form), "")


def _settings(guards: Sequence[tuple[str, str]]) -> list[str]:
    """Return the settings of this torch that make the guards of a line cheaper."""
    import torch
    import torch._dynamo.config

    ways = []
    is_of_module = any(source.startswith("L['self']") for source, _ in guards)
    if is_of_module and hasattr(torch._dynamo.config, "use_recursive_dict_tags_for_guards"):
        ways.append("set torch._dynamo.config.use_recursive_dict_tags_for_guards = True")
    name = "skip_guard_on_all_nn_modules_unsafe" if is_of_module else "skip_guard_on_globals_unsafe"
    is_global = any(source.startswith("G[") for source, _ in guards)
    if (is_of_module or is_global) and hasattr(torch.compiler, name):
        what = "the module" if is_of_module else "the globals"
        ways.append(
            f'compile with options={{"guard_filter_fn": torch.compiler.{name}}} if {what} never'
            " change" + "s" * is_of_module
        )
    return ways


def _lines_of_tree(root: Any) -> dict[str, list[tuple[str, str]]]:
    """Return the guards of each line: the source that the guard is about, and the guard."""
    lines: dict[str, list[tuple[str, str]]] = {}
    for manager in _managers(root):
        for leaf in manager.get_leaf_guards():
            said = "\n".join(map(str, leaf.verbose_code_parts()))
            found = _LINE.search(said)
            where = f"{found['file']}:{found['line']} in {found['function']}" if found else ""
            code = said.partition("\n")[0].partition("  # ")[0].strip()
            lines.setdefault(where, []).append((manager.get_source(), code))
    return lines


def _managers(manager: Any) -> Iterator[Any]:
    yield manager
    for child in manager.get_child_managers():
        yield from _managers(child)


def _cost_of(root: Any, values: Any, sources: set[str], tree_s: float) -> float:
    """Return the seconds that a check takes less without the guards on ``sources``.

    A source stays if a guard of another line is on it, or on what is reached through it.
    """
    kept = _needed(root, sources)
    copy = root.clone_manager(lambda manager: manager.get_source() in kept)
    seconds = _check_s(copy, values) if copy is not None else 0.0
    return max(tree_s - seconds, 0.0) if seconds else 0.0


def _needed(root: Any, sources: set[str]) -> set[str]:
    """Return the sources of a tree that are not among ``sources``, and those on the way to them."""
    kept = {root.get_source()}

    def is_needed(manager: Any) -> bool:
        children = [is_needed(child) for child in manager.get_child_managers()]
        needed = any(children) or manager.get_source() not in sources
        if needed:
            kept.add(manager.get_source())
        return needed

    is_needed(root)
    return kept


def _check_s(root: Any, values: Any) -> float:
    """Return the seconds of one check; 0 if the guards no longer hold, so that it ends early."""
    try:
        if not root.check(values):
            return 0.0
        began = time.perf_counter()
        root.check(values)
        repeats = max(1, int(ROUND_S / max(time.perf_counter() - began, 1e-7)))
        rounds = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            for _ in range(repeats):
                root.check(values)
            rounds.append((time.perf_counter() - began) / repeats)
        return statistics.median(rounds)
    except Exception:  # a guard on a value that is gone
        return 0.0


def _whole_path(where: str) -> str:
    """Return a line with the whole path of its file, of which Dynamo writes only the end."""
    file, colon, rest = where.partition(":")
    return f"{graph_recorder.whole_path(file)}{colon}{rest}"
