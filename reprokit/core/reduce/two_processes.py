"""Write a program whose failure needs a cache as a program of two processes.

The process that the reader of the repro starts reads the cache. It first starts itself again, as
the writer of the cache. So its exit status, its traceback and its hang are those of the failure.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from reprokit.core.records.caches import cache_stages
from reprokit.core.records.caches.cache_uses import MISS_MESSAGE
from reprokit.core.records.observation import Observation
from reprokit.core.reduce import ast_edits

_COUNTERS = {
    "fx-graph": ("inductor", "fxgraph_cache_miss"),
    "aot-autograd": ("aot_autograd", "autograd_cache_miss"),
    "dynamo": ("stats", "unique_graphs"),
}
"""What counts the misses of each cache, or the compiles despite its entries, in
``torch._dynamo.utils.counters``.
"""


@dataclass(frozen=True)
class CachePlan:
    """What the two processes do beside the program."""

    stage: str
    change: Mapping[str, str] = field(default_factory=dict)
    """The settings of the reader: environment variables, and settings of torch."""
    damaged: tuple[cache_stages.DamagedFile, ...] = ()
    """Files that are damaged before the reader starts."""
    missed: str = ""
    """The cache in which the reader must find each entry; empty if the failure is not a miss."""
    why_not: str = ""
    """Why two processes of one program cannot show the failure; empty if they may."""


def plan_of_observation(
    seen: Observation, change: Mapping[str, str], python: str
) -> CachePlan | None:
    """Return the plan for a failure; None for a failure that needs no cache.

    ``change`` and ``python`` are the settings and the interpreter of the stage ``changed``.
    """
    if not seen.stage:
        return None
    damaged = next((s.damaged for s in seen.stages if s.name == seen.stage), ())
    by_pattern = {file.pattern: file for file in reversed(damaged)}
    missed = seen.missed[0].cache if seen.missed else ""
    is_changed = seen.stage == cache_stages.CHANGED
    why_not = ""
    if seen.stage == cache_stages.OWN and not damaged:
        why_not = "the failure needs the cache folder of the environment, which is private"
    elif is_changed and python:
        why_not = "the failure needs two interpreters"
    damage = tuple(by_pattern.values())
    return CachePlan(seen.stage, change if is_changed else {}, damage, missed, why_not)


def with_writer(text: str, plan: CachePlan | None) -> str:
    """Return the program with a second process that fills its cache; unchanged without a plan."""
    if plan is None:
        return text
    tree = ast.parse(text)
    index = ast_edits.index_after_imports(tree)
    end = (tree.body[index - 1].end_lineno or 0) if index else 0
    lines = text.splitlines()
    is_loaded = plan.stage == cache_stages.LOADED
    settings = {name: value for name, value in plan.change.items() if "." in name}
    rows = [*_start_of_writer(plan), *lines[:end]]
    if not any(row == "import torch" for row in lines[:end]):
        rows.append("import torch")
    modules = dict.fromkeys(f"{name.partition('.config.')[0]}.config" for name in settings)
    rows += [f"import {name}" for name in modules]
    reader = [f"    {name} = {_as_source(value)}" for name, value in settings.items()]
    if is_loaded:
        reader += [
            '    with open(f"{folder.name}/artifacts", "rb") as file:',
            "        torch.compiler.load_cache_artifacts(file.read())",
        ]
    rows += ["", "if is_reader:", *reader] if reader else []
    rows += _checked_in_reader(tree, lines)[end:]
    if is_loaded:
        rows += [
            "",
            "if not is_reader:",
            "    saved = torch.compiler.save_cache_artifacts()",
            '    with open(sys.argv[1], "wb") as file:',
            '        file.write(saved[0] if saved else b"")',
        ]
    if plan.stage == cache_stages.PRECOMPILED:
        rows += ["", "if not is_reader:", "    torch.compiler.save_cache_artifacts()"]
    if plan.missed:
        group, name = _COUNTERS[plan.missed]
        count = f'torch._dynamo.utils.counters["{group}"]["{name}"]'
        rows += ["", "if is_reader:", f'    assert not {count}, "{MISS_MESSAGE}"']
    return "\n".join(rows) + "\n"


def _checked_in_reader(tree: ast.Module, lines: list[str]) -> list[str]:
    """Return the lines, in which only the reader checks results: an error of the writer would leave
    the reader without its cache.
    """
    changed = list(lines)
    for node in tree.body:
        is_check = isinstance(node, ast.Assert) or (
            isinstance(node, ast.Expr) and "torch.testing.assert_close" in ast.unparse(node)
        )
        if is_check:
            for index in range(node.lineno - 1, node.end_lineno or node.lineno):
                changed[index] = f"    {changed[index]}"
            changed[node.lineno - 1] = f"if is_reader:\n{changed[node.lineno - 1]}"
    return changed


def _as_source(value: str) -> str:
    """Return a setting as an expression of Python."""
    try:
        return repr(ast.literal_eval(value))
    except (ValueError, SyntaxError):
        return repr(value)


def _start_of_writer(plan: CachePlan) -> list[str]:
    folder = 'os.environ["TORCHINDUCTOR_CACHE_DIR"] = '
    is_loaded = plan.stage == cache_stages.LOADED
    is_precompiled = plan.stage == cache_stages.PRECOMPILED
    variables = {name: value for name, value in plan.change.items() if "." not in name}
    imports = ["os", *(["pathlib"] if plan.damaged else []), "subprocess", "sys", "tempfile"]
    written = 'f"{folder.name}/writer"' if is_loaded else "folder.name"
    rows = [
        *(f"import {name}" for name in imports),
        "",
        "is_reader = len(sys.argv) == 1",
        "if is_reader:  # the writer runs first, in a process of its own, and fills the cache",
        "    folder = tempfile.TemporaryDirectory()",
        f"    {folder}{written}",
        *(['    os.environ["TORCH_CACHING_PRECOMPILE"] = "1"'] if is_precompiled else []),
        '    command = [sys.executable, __file__, f"{folder.name}/artifacts"]',
        "    subprocess.run(command, check=True)",
    ]
    if is_loaded:
        rows.append(f'    {folder}f"{{folder.name}}/reader"')
    for file in plan.damaged:
        size = "path.stat().st_size // 2" if file.size_bytes else "0"
        rows += [
            f'    for path in pathlib.Path(folder.name).rglob("{file.pattern}"):',
            "        if path.is_file():",
            f"            os.truncate(path, {size})  # as a process leaves it that is killed",
        ]
    rows += [f"    os.environ[{name!r}] = {value!r}" for name, value in variables.items()]
    return [*rows, ""]
