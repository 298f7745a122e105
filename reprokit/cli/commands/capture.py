"""``reprokit capture``: run a target and write a pack."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import known_matches, option_types, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.command_classes import is_given
from reprokit.core.shared.source.entry_programs import ENTRIES

if TYPE_CHECKING:
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import Target


MIN_CALLS = 40
"""Of fewer calls, the samples of the second half say nothing."""
_OF_MODELS = (
    "layers",
    "batch_size",
    "sequence_length",
    "dtype",
    "settings",
    "mode",
    "backend",
    "dynamic",
    "fullgraph",
    "entry",
    "train",
    "device",
    "gpu",
    "tensor_parallel",
    "compare_simulated",
    "compare_memory",
    "weights",
    "cache_python",
)
"""Options that change a model."""
_OF_RUNS = (
    "timeout",
    "stall",
    "on_stall",
    "grace",
    "caches",
    "calls",
    "fail_on",
    "logs",
    "minimize",
    "ablate",
    "compare_speed",
)
"""Options of a run that files of torch do not have: the limits of their jail are fixed."""


@shared.target_command(
    epilog=(
        "Exit codes: 0 no failure, 1 a failure was captured, 2 wrong usage, 3 unknown, 130"
        " interrupted."
    ),
)
@shared.NAMING
@shared.option("--layers", section=shared.MODEL, type=shared.at_least(1), help="Number of layers.")
@shared.option("--batch-size", section=shared.MODEL, type=shared.at_least(1), help="Batch size.")
@shared.option(
    "--sequence-length", section=shared.MODEL, type=shared.at_least(1), help="Tokens in a sequence."
)
@shared.option(
    "--set",
    "settings",
    section=shared.MODEL,
    multiple=True,
    metavar="NAME=VALUE",
    help=(
        "Any other size: a keyword argument of the factory or of the zoo model, or a field of the"
        " hf: configuration."
    ),
)
@shared.SHAPING
@shared.option(
    "--tensor-parallel-gpus",
    "tensor_parallel",
    section=shared.MODEL,
    type=shared.at_least(2),
    metavar="N",
    help=(
        "Split the model over N ranks as its tp_plan says: N processes through torch's elastic"
        " launcher, on GPUs or, with gloo, on the CPU; with --gpu or --weights fake one process"
        " with a fake process group."
    ),
)
@shared.WATCHING
@shared.option(
    "--line-repeats",
    section=shared.ENDS,
    is_rare=True,
    type=shared.at_least(1),
    default=20_000,
    show_default=True,
    help="A line that Dynamo traces more times than this in one frame is not progress.",
)
@shared.option(
    "--entry",
    section=shared.COMPILE,
    type=click.Choice(ENTRIES),
    help="How the compiler is entered; default: torch.compile, or the entry of the factory.",
)
@shared.option(
    "--escalate/--no-escalate",
    section=shared.FINDINGS,
    is_rare=True,
    default=None,
    help=(
        "After a hang or a crash in compiled code, run again to learn more, such as whether"
        " backend='eager' hangs, or which operator crashes; default: for a factory, and for an"
        " isolated copy of a command that crashes."
    ),
)
@shared.option(
    "--fail-on",
    section=shared.FINDINGS,
    type=option_types.FailOnType(),
    metavar="NAMES",
    help=(
        "End with exit code 1 also for graph-break (graph-break:3 allows 3), recompile,"
        " cudagraph-skip, peak-memory, memory-growth or slower, which PyTorch regards as working."
    ),
)
@shared.option(
    "--compare/--no-compare",
    section=shared.FINDINGS,
    default=None,
    envvar="REPROKIT_COMPARE",
    help=(
        "Compare compiled results with those of eager, in separate runs; default: for a factory,"
        " not for a command."
    ),
)
@shared.option(
    "--calls",
    section=shared.FINDINGS,
    type=shared.at_least(MIN_CALLS),
    metavar="N",
    help=(
        "Call a factory N times, such as 200, and find memory, objects, guards, cache entries and"
        " file descriptors that grow with each call of compiled code."
    ),
)
@shared.option(
    "--compare-speed",
    section=shared.FINDINGS,
    is_flag=True,
    help=(
        "Time warm calls, compiled and in eager, in turns, and report compiled calls that are at"
        " least 5 % slower, with the part of a call that is the cause."
    ),
)
@shared.option(
    "--compare-memory",
    section=shared.FINDINGS,
    is_flag=True,
    help=(
        "Compare the peak of the memory with that of eager: of a factory, or of a model of the zoo"
        " or of transformers."
    ),
)
@shared.option(
    "--without-isolation",
    section=shared.FINDINGS,
    is_rare=True,
    is_flag=True,
    help="Run changed copies of a command also on a machine that cannot isolate them.",
)
@shared.CACHES
@shared.REDUCING
@shared.option(
    "--ablate/--no-ablate",
    section=shared.REPRO,
    default=True,
    envvar="REPROKIT_ABLATE",
    help=(
        "Find with which backends the failure occurs, and whether dynamic=False avoids it; default:"
        " yes."
    ),
)
@shared.option(
    "--logs",
    section=shared.EVIDENCE,
    is_rare=True,
    multiple=True,
    metavar="NAMES",
    help="Additional TORCH_LOGS for the log file, such as +inductor,guards.",
)
@shared.option(
    "--kernels",
    section=shared.EVIDENCE,
    is_rare=True,
    type=click.Choice(["none", "changed", "all"]),
    default="changed",
    show_default=True,
    help=(
        "With --gpu: which of the generated Triton kernels are compiled, each in its own process."
        " changed: those that this Triton has not compiled before."
    ),
)
@shared.option(
    "--compare-simulated",
    section=shared.FINDINGS,
    is_rare=True,
    is_flag=True,
    help=(
        "On a machine with a GPU: also compile for a simulated GPU of the same kind, and report"
        " the differences."
    ),
)
@shared.option(
    "--no-trace",
    section=shared.EVIDENCE,
    is_rare=True,
    is_flag=True,
    help="Do not record TORCH_TRACE, which contains the model's source.",
)
@shared.option(
    "--trace-limit",
    section=shared.EVIDENCE,
    is_rare=True,
    type=option_types.SizeType(),
    default="200MB",
    show_default=True,
    metavar="SIZE",
    help=(
        "Compressed size of TORCH_TRACE, such as 500MB or 2GB, at which the records of the oldest"
        " complete compiles are dropped."
    ),
)
@known_matches.CATALOGUES
@shared.option(
    "--yes",
    "is_agreed",
    section=shared.OUTPUT_SECTION,
    is_flag=True,
    help="Run the program of files that torch wrote without asking.",
)
@shared.OUTPUT
@click.pass_context
def capture(
    ctx: click.Context,
    /,
    target: str | None,
    rest: tuple[str, ...],
    model: str | None,
    as_json: bool,
    output_dir: Path | None,
    catalogues: tuple[Path, ...],
    is_agreed: bool,
    **options: Any,
) -> None:
    """Run TARGET, record what torch.compile does, report what happened, and write a pack.

    TARGET is a model of the zoo, hf:TYPE (a model of transformers with random weights), a factory
    that returns (model, args), a notebook, a command after --, or files that torch wrote about a
    run: TORCH_TRACE, the output of tlparse, fx_graph_runnable, programs of PyTorch's minifier,
    TORCH_COMPILE_DEBUG, or an exported .pt2. Their program runs in a jail, with your consent.

    \b
    Examples:
      reprokit capture --model llama40b
      reprokit capture --model llama8b --layers 4 --train --backend aot_eager
      reprokit capture hf:llama --layers 2 --set hidden_size=512
      reprokit capture model.py:make --dynamic --timeout 120
      reprokit capture notebook.ipynb
      reprokit capture -- python train.py --steps 10
      reprokit capture trace_folder --yes
      torchrun users: reprokit capture -- torchrun --nproc-per-node 2 train.py
    """
    from reprokit.cli.shared import capture_records
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.catalogue import catalogue_files
    from reprokit.host.pipeline import pipeline

    if ctx.meta.get("command") is None and capture_records.are_records(target, rest):
        _refuse_with_records(ctx)
        ctx.exit(
            capture_records.capture_records(
                [Path(word) for word in (str(target), *rest)],
                shared.interpreter_option(options["python"]),
                output_dir,
                catalogues,
                options["budget"],
                options["gpu"],
                is_agreed,
                as_json,
            )
        )
    try:
        request = read_request(ctx, target, rest, model, options)
        entries = catalogue_files.all_entries(catalogues)  # a damaged one is refused first
        is_command = request.target.kind == "command"
        with terminal.LiveStatus(is_quiet=as_json, is_plain=is_command) as live:
            stdout = out.PROGRESS if as_json else out.RESULTS
            streams = (out.Echo.of(stdout), out.Echo.of(out.PROGRESS))
            captured = pipeline.capture_target(
                request,
                output_dir,
                live.show_message,
                live.show_progress,
                streams if is_command else None,
                live.show_status,
                entries,
            )
    except BadInput as problem:
        if as_json:
            from reprokit.cli.documents import capture_documents

            out.RESULTS.print_json(capture_documents.refuse_capture(problem.code, str(problem)))
        raise
    if as_json:
        out.RESULTS.print_json(captured.to_json())
    else:
        from reprokit.cli.shared import print_capture

        print_capture.print_captured(captured)
    ctx.exit(captured.exit_code)


def read_request(
    ctx: click.Context,
    target: str | None,
    rest: tuple[str, ...],
    model: str | None,
    options: dict[str, Any],
) -> Request:
    """Return the request of a command line; raises BadInput if it is wrong."""
    from reprokit.core.shared import target_options as core_knobs
    from reprokit.core.shared.errors import BadInput
    from reprokit.core.shared.zoo import ZOO
    from reprokit.host.environment import agent_queries, simulated_gpu
    from reprokit.host.request import interpreter
    from reprokit.host.request.run_request import DEADLINE_S, Request
    from reprokit.host.request.target import (
        parse_command,
        parse_target,
        refuse_missing_script,
    )
    from reprokit.integrations import notebook_command

    command = ctx.meta.get("command")
    notebook = target or model
    is_alone = command is None and not (target and model)
    if notebook is not None and notebook_command.is_notebook(notebook) and is_alone:
        python = shared.interpreter_option(options["python"])
        command, target, model = notebook_command.command_of_notebook(notebook, python), None, None
    else:
        notebook = None
    if rest:
        raise BadInput(
            f"{target!r} is followed by {rest[0]!r}; write a command after two dashes: reprokit"
            f" capture -- {shlex.join([str(target), *rest])}"
        )
    if sum(x is not None for x in (target, model, command)) != 1:
        count = "more than one" if target or model or command is not None else "no"
        raise BadInput(
            f"{count} target was given; name one: --model NAME, file.py:factory, or -- COMMAND"
        )
    knobs = {k: options[k] for k in core_knobs.OWN_OPTION if options[k] is not None}
    knobs |= core_knobs.read_options(options["settings"])
    compile_with = {k: options[k] for k in ("mode", "backend", "dynamic") if options[k] is not None}
    if options["fullgraph"]:
        compile_with["fullgraph"] = True
    watching: dict[str, Any] = {
        "deadline_s": options["timeout"] or (DEADLINE_S if command is None else None),
        "stall_s": options["stall"],
        "on_stall": options["on_stall"] or "",
        "grace_s": options["grace"],
        "line_repeats": options["line_repeats"],
        "escalate": options["escalate"],
        "most_breaks": (options["fail_on"] or {}).get("graph-break"),
        "fail_on": tuple(options["fail_on"] or ()),
        "compares": command is None if options["compare"] is None else options["compare"],
        "calls": options["calls"] or 0,
        "compares_speed": options["compare_speed"],
        "runs_unisolated": options["without_isolation"],
        "minimizes": options["minimize"],
        "ablation_steps": "few" if options["ablate"] else "none",
        "budget_s": options["budget"],
        "proofs": options["proofs"],
        "cores": options["cores"] or 0,
        "logs": _logs(options["logs"]),
        "has_trace": not options["no_trace"],
        "trace_bytes": options["trace_limit"],
    }
    watching |= shared.read_caches(options)
    _refuse_calls(options, is_command=command is not None)
    if command is not None:
        _refuse_with_command(ctx, is_notebook=notebook is not None)
        if notebook is None:
            refuse_missing_script(command)
        return Request(
            parse_command(command, notebook or ""),
            **watching,
        )
    parsed = parse_target(str(target or model))
    gpu = simulated_gpu.parse_gpu_option(options["gpu"]) if options["gpu"] is not None else None
    if gpu is not None and options["weights"] == "real":
        raise BadInput("--weights real cannot be used with --gpu: nothing runs on a simulated GPU")
    if options["compare_speed"]:
        _refuse_with_speed(options)
    if gpu is not None and not str(options["device"] or "cuda").startswith("cuda"):
        raise BadInput(
            f"--device {options['device']} cannot be used with --gpu, which compiles for cuda"
        )
    # a command contains its interpreter
    python = (
        interpreter.check_interpreter(options["python"])
        if command is not None
        else shared.interpreter_option(options["python"])
    )
    if gpu is not None:
        agent_queries.check_simulation(python, gpu)
    beside = (
        simulated_gpu.gpu_for_comparison(python, gpu, options["device"])
        if options["compare_simulated"]
        else None
    )
    if parsed.kind == "zoo":
        core_knobs.check_options(parsed.name, knobs, ZOO[parsed.name].knobs)
        if options["train"] and not ZOO[parsed.name].can_train:
            raise BadInput(
                f"{parsed.name} only decodes, so it cannot be used with --train; llama-tiny can"
            )
    return Request(
        parsed,
        python=python,
        beside=beside,
        **watching,
        knobs=knobs,
        compile=compile_with,
        entry=options["entry"] or "",
        train=options["train"],
        device=options["device"] or ("cuda" if beside is not None else None),
        weights=_weights(parsed, knobs, options),
        gpu=gpu,
        tensor_parallel=options["tensor_parallel"] or 0,
        kernels=options["kernels"],
        compares_memory=options["compare_memory"],
    )


def _refuse_with_speed(options: dict[str, Any]) -> None:
    """Raise BadInput for an option with which calls cannot be timed."""
    from reprokit.core.shared.errors import BadInput

    reasons = {
        "--gpu": options["gpu"] and "on a simulated GPU nothing is executed",
        "--weights fake": options["weights"] == "fake" and "on fake weights nothing is executed",
        "--tensor-parallel-gpus": options["tensor_parallel"]
        and "all ranks must make the same calls",
    }
    for name, reason in reasons.items():
        if reason:
            raise BadInput(f"--compare-speed cannot be used with {name}: {reason}; leave one out")


def _weights(parsed: Target, knobs: dict[str, Any], options: dict[str, Any]) -> str:
    """Return ``--weights``, or ``fake`` if the ranks together need more memory than there is.

    Each rank builds the whole model before it is split.
    """
    from reprokit.core.shared import zoo
    from reprokit.host.environment import simulated_gpu

    weights = str(options["weights"])
    if options["tensor_parallel"] is None or weights != "auto" or parsed.kind != "zoo":
        return weights
    entry = zoo.ZOO[parsed.name]
    needed = (
        zoo.needed_bytes(entry, {**entry.knobs, **knobs}, options["train"])
        * options["tensor_parallel"]
    )
    return weights if simulated_gpu.has_memory_for(needed) else "fake"


def _refuse_with_command(ctx: click.Context, is_notebook: bool) -> None:
    """Raise BadInput for an option that has an effect only on a factory target. A notebook, too,
    runs in the interpreter of ``--python``.
    """
    from reprokit.core.shared.errors import BadInput

    used = [
        name for name in (*_OF_MODELS, *(() if is_notebook else ("python",))) if is_given(ctx, name)
    ]
    if is_given(ctx, "compare_speed"):
        raise BadInput(
            "--compare-speed calls a model several times, and a command runs unchanged; name a"
            " factory, such as model.py:make"
        )
    if used[:1] == ["compare_memory"]:
        raise BadInput(
            "--compare-memory needs a factory, a model of the zoo or hf:TYPE: a command is not run"
            " again to measure its memory; leave it out"
        )
    if used:
        raise BadInput(
            f"{_spelled(used[0])} changes a model, and a command runs unchanged; add it to the"
            " command, or leave it out"
        )


def _refuse_calls(options: dict[str, Any], is_command: bool) -> None:
    """Raise BadInput if ``--calls`` is given and the target cannot be called many times."""
    from reprokit.core.shared.errors import BadInput

    if not options["calls"]:
        return
    if is_command:
        raise BadInput(
            "--calls needs a target that reprokit calls, and a command calls its model itself; name"
            " a factory, such as model.py:make, or leave it out"
        )
    executed = "--calls needs calls that are executed in one process"
    if options["gpu"] is not None or options["weights"] == "fake":
        named = "--gpu" if options["gpu"] is not None else "--weights fake"
        raise BadInput(f"{executed}, and with {named} nothing is; leave out one of the two")
    if options["tensor_parallel"] is not None:
        raise BadInput(f"{executed}; leave out --calls or --tensor-parallel-gpus")


def _refuse_with_records(ctx: click.Context) -> None:
    """Raise BadInput for an option that has no effect on files that torch wrote."""
    from reprokit.core.shared.errors import BadInput

    used = [n for n in (*_OF_MODELS, *_OF_RUNS) if n != "gpu" and is_given(ctx, n)]
    if used:
        raise BadInput(
            f"{_spelled(used[0])} cannot be used with files that torch wrote: the program of the"
            " failure is in them; leave it out"
        )


def _spelled(name: str) -> str:
    named = {"settings": "--set", "tensor_parallel": "--tensor-parallel-gpus"}
    return named.get(name, "--" + name.replace("_", "-"))


def _logs(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(n.strip() for v in values for n in v.split(",") if n.strip())
