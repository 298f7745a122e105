"""The program that shows the failure: the target's own source, or the graph that was being
compiled.
"""

from __future__ import annotations

import ast
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.records import rank_graphs
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.reduce import safe_to_rerun
from reprokit.core.reduce.ast_edits import is_main
from reprokit.core.reduce.inline_modules import Unjoinable, join_modules
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import (
    ModelSplit,
    Process,
    SourceFile,
    TargetBuilt,
    TransformersModel,
    Weights,
)
from reprokit.core.shared.source import process_group
from reprokit.core.shared.zoo import ZOO
from reprokit.host.request.run_request import Request, has_simulated_ranks
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import files

MOST_LINES = 400
"""A longer source is not inlined when a graph is at hand."""
GRAPH = "the graph that was compiled last, with inputs made anew from their metadata"


@dataclass(frozen=True)
class ProgramScript:
    """A program that a run left; empty where it left none."""

    text: str = ""
    about: str = ""
    """What it is, in one line."""
    is_graph: bool = False
    """A recorded graph, whose inputs are made anew."""


def make_program(
    request: Request, seen: Observation, journals: Journals, run_path: Path
) -> tuple[ProgramScript, list[Missing]]:
    """Give the program, which nothing has proved, and why there is no better one."""
    missing: list[Missing] = []
    if seen.kernel:
        text = files.read_text(run_path / run_names.KERNELS_FOLDER / Path(seen.kernel).name)
        return (
            ProgramScript(text, "the kernel as Inductor generated it, compiled with Triton alone"),
            missing,
        )
    graph = _graph_script(seen, run_path)
    if request.target.kind != "command":
        source, why = _source(request, journals)
        if source and (source.count("\n") <= MOST_LINES or not graph):
            own = (
                "a script that builds the model anew"
                if request.target.kind == "hf"
                else "the target's own source"
            )
            needs_ranks = (
                not has_simulated_ranks(request)
                or rank_graphs.mismatch_of_graphs(seen.graphs) is not None
            )
            text = _with_main(source, request, journals, needs_ranks)
            return ProgramScript(text, f"{own}, with the call that failed"), missing
        missing.append(
            Missing("repro from source", why or f"the source is longer than {MOST_LINES} lines")
        )
    if graph:
        return ProgramScript(graph, GRAPH, is_graph=True), missing
    script, why = _script(journals) if request.target.kind == "command" else ("", "")
    if script:
        return ProgramScript(script, "the script that the command ran"), missing
    why = why or "the target is not one self-contained file"
    missing.append(Missing(run_names.REPRO_FILE, f"no graph was recorded, and {why}"))
    return ProgramScript(), missing


def own_source(request: Request, journals: Journals) -> str:
    """The target's own source with the call that failed; empty where it does not stand alone."""
    if request.target.kind == "command":
        return _script(journals)[0]
    source, _ = _source(request, journals)
    return _with_main(source, request, journals, needs_ranks=False) if source else ""


def _script(journals: Journals) -> tuple[str, str]:
    """The script that a command ran, where running changed copies of it does no harm; or why there
    is none.
    """
    refused = ""
    for told in journals.all(Process):
        words, folder = told.argv, Path(told.cwd or ".")
        if not words:
            continue
        place = _program(words)
        module = words[place + 1] if words[place] == "-m" and place + 1 < len(words) else ""
        if module:
            place += 1
            below = folder / module.replace(".", "/")
            path = below / "__main__.py" if below.is_dir() else below.with_suffix(".py")
        else:
            path = folder / words[place]
            folder = path.parent
        if not place or path.suffix != ".py" or not path.is_file() or "site-packages" in path.parts:
            continue  # such as a worker that torch started
        if path.stat().st_mtime > told.t:
            refused = refused or f"{path.name} has changed since it ran"
            continue
        text, why = _joined(path, folder, module)
        if text and (why := safe_to_rerun.why_not_again(ast.parse(text))):
            why = f"changed copies of {path.name} are not run unasked: {why}"
        if not why:
            return safe_to_rerun.with_arguments(text, words[place + 1 :]), ""
        refused = refused or why
    return "", refused or "the command is no Python script"


def _program(words: list[str]) -> int:
    """Where in a command line of Python's the script stands, or ``-c`` or ``-m``; 0 where there is
    none.
    """
    for place, word in enumerate(words):
        is_value = place > 0 and words[place - 1] in ("-X", "-W")
        if place and not is_value and (not word.startswith("-") or word in ("-c", "-m")):
            return place
    return 0


def _joined(path: Path, folder: Path, module: str) -> tuple[str, str]:
    """A file together with those of its own that it imports, as one text; or why that cannot be."""
    places = [folder, *(Path(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]

    def find(name: str) -> str | None:
        if name.split(".")[0] in {*sys.stdlib_module_names, *safe_to_rerun.COMPILERS}:
            return None
        for place in places:
            for found in (
                place / f"{name.replace('.', '/')}.py",
                place / name.replace(".", "/") / "__init__.py",
            ):
                if found.is_file() and "site-packages" not in found.parts:
                    return files.read_text(found)
        return None

    try:
        return join_modules(files.read_text(path), find, module), ""
    except (SyntaxError, ValueError, RecursionError) as problem:
        return "", f"{path.name} does not parse: {problem}"
    except Unjoinable as problem:
        return "", f"{path.name} and its own files do not stand in one: {problem}"


def _source(request: Request, journals: Journals) -> tuple[str, str]:
    target = request.target
    if target.kind == "hf":
        return journals.last(TransformersModel).script, "the model was not built"
    if target.kind == "zoo":
        path = (
            Path(__file__).resolve().parents[2]
            / "agent"
            / "models"
            / f"{ZOO[target.name].source}.py"
        )
    else:
        file = target.place if target.kind == "file" else journals.last(SourceFile).file
        if not file:
            return "", "the factory's source file is not known"
        path = Path(str(file))
    module = target.place if target.kind == "module" else ""
    text, why = _joined(path, path.parents[module.count(".")], module)
    if not text:
        return "", why
    tree = ast.parse(text)
    if foreign := safe_to_rerun.foreign_imports(tree):
        return "", f"its source imports {', '.join(foreign[:6])}, so it does not stand alone"
    return _without_main(text, tree), ""


def _imports_torch(source: str) -> bool:
    """True where the module itself, not only a function in it, binds the name ``torch``."""
    return any(
        isinstance(n, ast.Import) and any(a.name == "torch" and not a.asname for a in n.names)
        for n in ast.parse(source).body
    )


def _without_main(text: str, tree: ast.Module) -> str:
    lines = text.splitlines()
    for node in reversed(tree.body):
        if is_main(node):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines).rstrip() + "\n"


def _with_main(source: str, request: Request, journals: Journals, needs_ranks: bool) -> str:
    """Append the call, in as few lines as what the factory returned needs.

    Of a model split over ranks: of one rank in a fake process group, or ``needs_ranks``, which
    torchrun starts.
    """
    target, made = request.target, journals.last(TargetBuilt)
    knobs = {k: v for k, v in request.knobs.items() if v is not None}
    rows = ["torch.manual_seed(0)"]
    if target.kind == "zoo":
        knobs = {**ZOO[target.name].knobs, **knobs}
    if target.kind == "hf":
        told = journals.last(TransformersModel)
        knobs = {**told.call, "dtype": told.dtype or "float32"}
    if target.kind in ("zoo", "hf"):
        rows.append(f"torch.set_default_dtype(torch.{knobs.pop('dtype')})")
    device = request.device or ("cuda" if request.gpu else "")
    if request.tensor_parallel:
        kind = (device or (journals.last(ModelSplit).device or "cpu")).partition(":")[0]
        device = kind if kind != "cpu" else device
        rows += _joined_ranks(request.tensor_parallel, kind, needs_ranks)
    if device:
        rows.append(f'torch.set_default_device("{device}")')
    is_fake = journals.last(Weights).kind == "fake" and not (
        request.tensor_parallel and needs_ranks
    )
    if is_fake and not request.gpu:  # a simulation has fake tensors only
        rows += _FAKE
    given = ", ".join(f"{k}={'torch.' + v if k == 'dtype' else repr(v)}" for k, v in knobs.items())
    factory = f"{'make' if target.kind in ('zoo', 'hf') else target.name}({given})"
    options = "".join(f", {k}={v!r}" for k, v in request.compile.items())
    if made.form == "dict":
        rows += [f"made = {factory}", 'model = made["model"]']
        options = (
            f', **{{**made.get("compile", {{}}), **dict({options[2:]})}}'
            if options
            else ', **made.get("compile", {})'
        )
        loop, call = (
            'for args, kwargs in made.get("calls", [((), {})]):',
            "compiled(*args, **kwargs)",
        )
    else:
        names = "model, args, kwargs" if made.form == "args, kwargs" else "model, args"
        rows.append(f"{names} = {factory}")
        loop = ""
        call = {"args": "compiled(*args)", "arg": "compiled(args)"}.get(
            made.form, "compiled(*args, **kwargs)"
        )
    if request.tensor_parallel and (plan := _plan(journals)):
        rows += process_group.split_model(plan)
    if made.is_module:
        rows.append(f"model.{'train' if made.train else 'eval'}()")
    rows.append(f"compiled = torch.compile(model{options})")
    calls = (
        _BACKWARD.format(call=call).splitlines()
        if made.train
        else ["with torch.no_grad():", f"    print({call})"]
    )
    rows += [loop, *(f"    {row}" for row in calls)] if loop else calls
    if request.tensor_parallel and needs_ranks:
        rows.append(process_group.LEAVE)
    if not _imports_torch(source):
        rows.insert(0, "import torch")
    body = "\n".join(f"    {row}" if row else "" for row in rows)
    return f'{source}\n\nif __name__ == "__main__":\n{body}\n'


def _plan(journals: Journals) -> dict[str, str]:
    """How the model was split; a journal may hold anything."""
    plan = journals.last(ModelSplit).plan
    return {name: style for name, style in plan.items() if style in process_group.STYLES}


def _joined_ranks(count: int, kind: str, needs_ranks: bool) -> list[str]:
    launched = (
        [f"# torchrun --standalone --nproc-per-node {count} THIS_FILE"] if needs_ranks else []
    )
    backend = ("nccl" if kind == "cuda" else "gloo") if needs_ranks else ""
    return [
        *launched,
        *process_group.group_rows(0, count, {"shape": [count], "device": kind}, backend),
    ]


_FAKE = (
    "import torch._inductor.config as config",
    "from torch._subclasses.fake_tensor import FakeTensorMode",
    "",
    (
        "# The weights do not fit in memory: compile on fake tensors, and do not run what was"
        " compiled."
    ),
    "config.wrap_inductor_compiled_regions, config.shape_padding = True, False",
    "FakeTensorMode().__enter__()",
)
_BACKWARD = """\
leaves = torch.utils._pytree.tree_leaves({call})
sum(t.float().pow(2).mean() for t in leaves if isinstance(t, torch.Tensor) and t.requires_grad).backward()"""


def _graph_script(seen: Observation, run_path: Path) -> str:
    """The script of the graph at work: the last one that was not done, preferring what Dynamo
    saw.
    """
    graphs = [g for g in seen.graphs if g.number >= 0]
    waiting = [g for g in graphs if not g.is_done]
    backward = [g for g in waiting if g.is_backward]
    order = (
        backward
        or [g for g in waiting if g.level == "dynamo"]
        or waiting
        or [g for g in graphs if g.level == "dynamo"]
        or graphs
    )
    if not order:
        return ""
    return files.read_text(
        run_path / run_names.GRAPHS_FOLDER / f"{order[-1].number:04d}" / run_names.GRAPH_FILE
    )
