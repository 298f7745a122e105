"""Find the program that may show the failure: the target's own source, or a recorded graph."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.records import rank_graphs
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.reduce.ast_edits import is_main
from reprokit.core.reduce.project import entry_text
from reprokit.core.reduce.project.inline_modules import ModuleSource, Unjoinable, join_modules
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import (
    ModelSplit,
    Process,
    SourceFile,
    TargetBuilt,
    TransformersModel,
    Weights,
)
from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.core.shared.source import entry_programs, process_group
from reprokit.core.shared.zoo import ZOO
from reprokit.host.probe import isolated_runs
from reprokit.host.request.run_request import Request, has_simulated_ranks
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import files

MAX_LISTED_FOLDERS = 200
"""The most folders of a program in which a file with a computed name is looked for."""
MAX_SOURCE_LINES = 400
"""A longer source is not used where there is a recorded graph."""
GRAPH = "the graph that was compiled last, with new inputs of the same metadata"


@dataclass(frozen=True)
class ProgramScript:
    """A program of a run; empty where there is none."""

    text: str = ""
    about: str = ""
    """A description in one line."""
    is_graph: bool = False
    """True for a recorded graph, whose inputs are made anew."""


@dataclass(frozen=True)
class OwnSource:
    """The program that the target is, as one text."""

    text: str = ""
    why_not: str = ""
    """Why there is no text."""
    isolation: Isolation | None = None
    """How the program and changed copies of it run; None for a program of reprokit."""


def find_program_script(
    request: Request, seen: Observation, journals: Journals, run_path: Path
) -> tuple[ProgramScript, list[Missing]]:
    """Return the program, which is not proved yet, and why there is no better one."""
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
        if source and (source.count("\n") <= MAX_SOURCE_LINES or not graph):
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
            Missing(
                "repro from source", why or f"the source is longer than {MAX_SOURCE_LINES} lines"
            )
        )
    if graph:
        return ProgramScript(graph, GRAPH, is_graph=True), missing
    script = _script(request, journals) if request.target.kind == "command" else OwnSource()
    if script.text:
        return ProgramScript(script.text, "the script that the command ran"), missing
    why = script.why_not or "the target is not one self-contained file"
    why = f"no graph was recorded, and {why}"
    if request.attached_pid and not journals.events_of_type(Process):
        why = "an observation from outside records neither graphs nor the program"
    missing.append(Missing(run_names.REPRO_FILE, why))
    return ProgramScript(), missing


def own_source(request: Request, journals: Journals, is_real: bool = False) -> OwnSource:
    """Return the target's source with the call that failed, or why there is none.

    With ``is_real``, its tensors are not fake, even if those of the run were.
    """
    if request.target.kind == "command":
        return _script(request, journals)
    source, why = _source(request, journals)
    if not source:
        return OwnSource(why_not=why)
    isolation = None
    if request.target.kind in ("file", "module") and not isolated_runs.why_not_isolated():
        path = request.target.place if request.target.kind == "file" else ""
        isolation = Isolation(cwd=os.getcwd(), path=str(path))  # a factory may run again anyway
    return OwnSource(_with_main(source, request, journals, False, is_real), "", isolation)


def _script(request: Request, journals: Journals) -> OwnSource:
    """Return the script that a command ran, or why there is none.

    A command is not run again where it could change something, so its script runs isolated.
    """
    refused = ""
    processes = journals.events_of_type(Process)
    if not processes:
        return OwnSource(why_not="no process recorded its command line")
    for process in processes:
        words, folder = process.argv, Path(process.cwd or ".")
        if not words:
            continue
        cwd, index = folder, _script_index(words)
        module = words[index + 1] if words[index] == "-m" and index + 1 < len(words) else ""
        if module:
            index += 1
            below = folder / module.replace(".", "/")
            if below.is_dir():
                below, module = below / "__main__", f"{module}.__main__"
            path = below.with_suffix(".py")
        else:
            path = folder / words[index]
            folder = path.parent
        if not index or path.suffix != ".py" or not path.is_file() or "site-packages" in path.parts:
            continue  # such as a worker that torch started
        if path.parts[-2:] == ("integrations", "run_notebook.py"):
            refused = refused or "the command runs a notebook"
            continue
        if path.stat().st_mtime > process.t:
            refused = refused or f"{path.name} has changed since it ran"
            continue
        text, why = _joined(path, folder, module)
        problem = isolated_runs.why_not_isolated() if not why else ""
        if problem and not request.runs_unisolated:
            why = (
                f"this machine cannot isolate changed copies of {path.name}: {problem};"
                " --without-isolation runs them anyway"
            )
        if not why:
            text = entry_text.with_arguments(text, words[index + 1 :])
            if process.world_size == "1":
                text = entry_text.as_only_rank(text)
            file = "" if module else str(path)
            isolation = Isolation(cwd=str(cwd), path=file, is_open=bool(problem))
            return OwnSource(text, "", isolation)
        refused = refused or why
    return OwnSource(why_not=refused or "the command is not a Python script")


def _script_index(words: list[str]) -> int:
    """Return the index of the script, or of ``-c`` or ``-m``, in the arguments of Python.

    Return 0 where there is none.
    """
    for index, word in enumerate(words):
        is_value = index > 0 and words[index - 1] in ("-X", "-W")
        if index and not is_value and (not word.startswith("-") or word in ("-c", "-m")):
            return index
    return 0


def _joined(path: Path, folder: Path, module: str) -> tuple[str, str]:
    """Return a file and the user's files that it imports as one text, or why that is impossible."""
    roots = [folder, *(Path(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]

    def find_module(name: str) -> ModuleSource | None:
        if entry_text.is_standard(name):
            return None
        for root in roots:
            if name.partition(".")[0] in _installed_in(root):
                return None
            for file in (
                root / f"{name.replace('.', '/')}.py",
                root / name.replace(".", "/") / "__init__.py",
            ):
                if file.is_file() and "site-packages" not in file.parts:
                    place = os.path.relpath(file, path.parent)
                    is_package = file.name == "__init__.py"
                    return ModuleSource(files.read_text(file), is_package, place)
        return None

    def every_module() -> list[str]:
        found: list[str] = []
        for place, folders, names in itertools.islice(os.walk(folder), MAX_LISTED_FOLDERS):
            is_own = "pyvenv.cfg" not in names and "site-packages" not in Path(place).parts
            folders[:] = sorted(n for n in folders if is_own and not n.startswith((".", "__")))
            parts = Path(place).relative_to(folder).parts
            own = (n for n in names if is_own and n.endswith(".py") and n != "__init__.py")
            found += (".".join((*parts, name.removesuffix(".py"))) for name in own)
        return sorted(found)

    try:
        return join_modules(files.read_text(path), find_module, module, every_module), ""
    except (SyntaxError, ValueError, RecursionError) as problem:
        return "", f"{path.name} does not parse: {problem}"
    except Unjoinable as problem:
        return "", f"{path.name} and the files that it imports cannot be joined: {problem}"


@functools.cache
def _installed_in(folder: Path) -> frozenset[str]:
    """Return the names of the modules that an installer put in a folder, as ``pip --target`` does.

    The metadata of a project that is only developed there has no ``RECORD``.
    """
    found = set()
    for distribution in importlib.metadata.distributions(path=[str(folder)]):
        rows = distribution.files or ()
        if any(row.name == "RECORD" for row in rows):
            found |= {row.parts[0].removesuffix(".py") for row in rows if row.suffix == ".py"}
    return frozenset(found)


def _source(request: Request, journals: Journals) -> tuple[str, str]:
    target = request.target
    if target.kind == "hf":
        return journals.last_event_of_type(TransformersModel).script, "the model was not built"
    if target.kind == "zoo":
        path = (
            Path(__file__).resolve().parents[3]
            / "agent"
            / "models"
            / f"{ZOO[target.name].source}.py"
        )
    else:
        file = (
            target.place if target.kind == "file" else journals.last_event_of_type(SourceFile).file
        )
        if not file:
            return "", "the factory's source file is not known"
        path = Path(str(file))
    module = target.place if target.kind == "module" else ""
    text, why = _joined(path, path.parents[module.count(".")], module)
    if not text:
        return "", why
    return _without_main(text, ast.parse(text)), ""


def _imports_torch(source: str) -> bool:
    """Return True where the module itself, not only a function in it, imports ``torch``."""
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


def _with_main(
    source: str, request: Request, journals: Journals, needs_ranks: bool, is_real: bool = False
) -> str:
    """Return the source with the call, in as few lines as the result of the factory needs.

    A model that is split over ranks runs as one rank in a fake process group, or, with
    ``needs_ranks``, as all ranks, which torchrun starts.
    """
    target, built = request.target, journals.last_event_of_type(TargetBuilt)
    knobs = {k: v for k, v in request.knobs.items() if v is not None}
    rows = ["torch.manual_seed(0)"]
    if target.kind == "zoo":
        knobs = {**ZOO[target.name].knobs, **knobs}
    if target.kind == "hf":
        model = journals.last_event_of_type(TransformersModel)
        knobs = {**model.call, "dtype": model.dtype or "float32"}
    if target.kind in ("zoo", "hf"):
        rows.append(f"torch.set_default_dtype(torch.{knobs.pop('dtype')})")
    device = request.device or ("cuda" if request.gpu else "")
    if request.tensor_parallel:
        kind = (device or (journals.last_event_of_type(ModelSplit).device or "cpu")).partition(":")[
            0
        ]
        device = kind if kind != "cpu" else device
        rows += _process_group_rows(request.tensor_parallel, kind, needs_ranks)
    if device:
        rows.append(f'torch.set_default_device("{device}")')
    is_fake = journals.last_event_of_type(Weights).kind == "fake" and not (
        request.tensor_parallel and needs_ranks
    )
    if is_fake and not request.gpu and not is_real:  # a simulation always has fake tensors
        rows += _FAKE
    values = ", ".join(f"{k}={'torch.' + v if k == 'dtype' else repr(v)}" for k, v in knobs.items())
    factory = f"{'make' if target.kind in ('zoo', 'hf') else target.name}({values})"
    options = "".join(f", {k}={v!r}" for k, v in request.compile.items())
    if built.form == "dict":
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
        names = "model, args, kwargs" if built.form == "args, kwargs" else "model, args"
        rows.append(f"{names} = {factory}")
        loop = ""
        call = {"args": "compiled(*args)", "arg": "compiled(args)"}.get(
            built.form, "compiled(*args, **kwargs)"
        )
    if request.tensor_parallel and (plan := _plan(journals)):
        rows += process_group.split_model_lines(plan)
    if built.is_module:
        rows.append(f"model.{'train' if built.train else 'eval'}()")
    if built.entry in ("", entry_programs.COMPILE):
        before = [f"compiled = torch.compile(model{options})"]
        entered = entry_programs.EntryText([], before, [], call)
    else:
        entered = _entered(request, built)
    rows += [*entered.definitions, *entered.before]
    each = entered.each
    if built.train:
        leaves = f"leaves = torch.utils._pytree.tree_leaves({entered.call})"
        calls = [*each, leaves, *entered.backward(_LOSS)]
    else:
        calls = [
            "with torch.no_grad():",
            *(f"    {row}" for row in (*each, f"print({entered.call})")),
        ]
    rows += [loop, *(f"    {row}" for row in calls)] if loop else calls
    if request.tensor_parallel and needs_ranks:
        rows.append(process_group.LEAVE_GROUP)
    if not _imports_torch(source):
        rows.insert(0, "import torch")
    body = "\n".join(f"    {row}" if row else "" for row in rows)
    return f'{source}\n\nif __name__ == "__main__":\n{body}\n'


def _entered(request: Request, built: TargetBuilt) -> entry_programs.EntryText:
    """Return the text that enters the compiler in another way than by a call of torch.compile."""
    words = {k: repr(v) for k, v in {**built.compile, **request.compile}.items()}
    given = {
        "args": entry_programs.GivenArguments("*args", "tuple(args)"),
        "arg": entry_programs.GivenArguments("args", "(args,)"),
    }.get(built.form, entry_programs.GivenArguments("*args, **kwargs", "tuple(args)", "kwargs"))
    is_ahead = built.form == "dict" and built.entry == entry_programs.AOTINDUCTOR
    options = 'made.get("compile", {}).get("options")' if is_ahead else ""
    return entry_programs.enter_text(
        built.entry, "model", given, words, options, is_module=built.is_module
    )


def _plan(journals: Journals) -> dict[str, str]:
    """Return how the model was split, with only the known styles."""
    plan = journals.last_event_of_type(ModelSplit).plan
    return {name: style for name, style in plan.items() if style in process_group.STYLES}


def _process_group_rows(count: int, kind: str, needs_ranks: bool) -> list[str]:
    launched = (
        [f"# torchrun --standalone --nproc-per-node {count} THIS_FILE"] if needs_ranks else []
    )
    backend = ("nccl" if kind == "cuda" else "gloo") if needs_ranks else ""
    return [
        *launched,
        *process_group.join_group_lines(0, count, {"shape": [count], "device": kind}, backend),
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
_LOSS = (
    "sum(t.float().pow(2).mean() for t in leaves if isinstance(t, torch.Tensor) and"
    " t.requires_grad)"
)


def _graph_script(seen: Observation, run_path: Path) -> str:
    """Return the script of the last graph whose compile did not end, or else of the last graph.

    Prefer a backward graph, then a graph that Dynamo saw.
    """
    graphs = [g for g in seen.graphs if g.number >= 0]
    waiting = [g for g in graphs if not g.is_done]
    backward = [g for g in waiting if g.is_backward]
    order = (
        backward
        or [g for g in waiting if g.is_entered]
        or waiting
        or [g for g in graphs if g.is_entered]
        or graphs
    )
    if not order:
        return ""
    return files.read_text(
        run_path / run_names.GRAPHS_FOLDER / f"{order[-1].number:04d}" / run_names.GRAPH_FILE
    )
