"""``reprokit capture``: from a target to a pack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, print_capture, terminal
from reprokit.core.records.kinds import kind_named

"""Every other kind is a captured failure: 1."""


class CommandWithTarget(click.Command):
    """Keeps what stands after ``--`` for the target, untouched."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            place = args.index("--")
            ctx.meta["command"] = tuple(args[place + 1 :])
            args = args[:place]
        return super().parse_args(ctx, args)


@click.command(
    cls=CommandWithTarget,
    epilog=(
        "Exit codes: 0 no failure, 1 a failure was captured, 2 wrong usage, 3 unknown, 130"
        " interrupted."
    ),
)
@shared.NAMING
@click.option("--layers", type=click.IntRange(1), help="Number of layers.")
@click.option("--batch-size", type=click.IntRange(1), help="Batch size.")
@click.option("--sequence-length", type=click.IntRange(1), help="Tokens in a sequence.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help=(
        "Any other size: a keyword argument of the factory, a knob of the zoo model, a field of the"
        " hf: configuration."
    ),
)
@shared.SHAPING
@click.option(
    "--tensor-parallel-gpus",
    "tensor_parallel",
    type=click.IntRange(2),
    metavar="N",
    help=(
        "Split the model over N ranks as its tp_plan says: N processes through torch's elastic"
        " launcher, on GPUs or, with gloo, on the CPU; with --gpu or --weights fake one process"
        " with a fake process group."
    ),
)
@shared.WATCHING
@click.option(
    "--line-repeats",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="A line that Dynamo traces more often than this in one frame is no more progress.",
)
@click.option(
    "--escalate/--no-escalate",
    default=None,
    help=(
        "After a hang, ask in shorter runs what is still open, such as whether backend='eager'"
        " hangs; default: for a factory, not for a command."
    ),
)
@click.option(
    "--graph-breaks",
    type=click.IntRange(0),
    metavar="N",
    help="More graph breaks than N are a failure; default: any number is fine.",
)
@click.option(
    "--compare/--no-compare",
    default=None,
    envvar="REPROKIT_COMPARE",
    show_envvar=True,
    help=(
        "Compare compiled results with eager's, in runs of their own; default: for a factory, not"
        " for a command."
    ),
)
@shared.REDUCING
@click.option(
    "--ablate/--no-ablate",
    default=True,
    envvar="REPROKIT_ABLATE",
    show_envvar=True,
    help=(
        "Ask with which backends a failure shows, and whether dynamic=False avoids it; default:"
        " yes."
    ),
)
@click.option(
    "--logs",
    multiple=True,
    metavar="NAMES",
    help="More TORCH_LOGS for the log file, such as +inductor,guards.",
)
@click.option(
    "--kernels",
    type=click.Choice(["none", "changed", "all"]),
    default="changed",
    show_default=True,
    help=(
        "With --gpu: which of the generated Triton kernels are compiled, each alone. changed: those"
        " that did not compile before with this Triton."
    ),
)
@click.option(
    "--compare-simulated",
    is_flag=True,
    help=(
        "On a machine with a GPU: compile for a simulated one like it too, and say where the two"
        " disagree."
    ),
)
@click.option(
    "--no-trace", is_flag=True, help="Do not record TORCH_TRACE, which holds all model source."
)
@shared.LEAVING
@click.pass_context
def capture(
    ctx: click.Context,
    /,
    target: str | None,
    rest: tuple[str, ...],
    model: str | None,
    as_json: bool,
    output_dir: Path | None,
    **options: Any,
) -> None:
    """Run TARGET under instrumented torch.compile, say what happened, and leave a pack.

    TARGET is a model of the zoo, hf:TYPE (a model of transformers with random weights), a factory
    that returns (model, args), or a whole command after --.

    \b
    Examples:
      reprokit capture --model llama40b
      reprokit capture --model llama8b --layers 4 --train --backend aot_eager
      reprokit capture hf:llama --layers 2 --set hidden_size=512
      reprokit capture model.py:make --dynamic --timeout 120
      reprokit capture -- python train.py --steps 10
      torchrun users: reprokit capture -- torchrun --nproc-per-node 2 train.py
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.pipeline import pipeline as line

    try:
        request = read_request(ctx, target, rest, model, options)
        is_command = request.target.kind == "command"
        with terminal.LiveStatus(is_quiet=as_json, is_plain=is_command) as live:
            streams = ((out.PROGRESS if as_json else out.RESULTS).buffer, out.PROGRESS.buffer)
            captured = line.capture(
                request,
                output_dir,
                live.say,
                live.show,
                streams if is_command else None,
                live.show_status,
            )
    except BadInput as problem:
        if as_json:
            out.RESULTS.json(refusal(str(problem)))
        raise
    if as_json:
        out.RESULTS.json(captured.to_json())
    else:
        print_capture.captured_run(captured)
    ctx.exit(exit_code(captured.verdict))


def exit_code(verdict: Any) -> int:
    """The status that tells a caller what happened."""
    return 130 if verdict.cause == "interrupted" else kind_named(verdict.kind).exit_code


def read_request(
    ctx: click.Context,
    target: str | None,
    rest: tuple[str, ...],
    model: str | None,
    options: dict[str, Any],
) -> Any:
    """What the words of a command line ask for; raises BadInput for what cannot be."""
    from reprokit.core.shared import target_options as core_knobs
    from reprokit.core.shared.errors import BadInput
    from reprokit.core.shared.zoo import ZOO
    from reprokit.host.environment import agent_question, simulated_gpu
    from reprokit.host.request import interpreter
    from reprokit.host.request.run_request import DEADLINE_S, Request
    from reprokit.host.request.target import parse_command, parse_target

    command = ctx.meta.get("command")
    if rest:
        raise BadInput(
            f"{target!r} is followed by {rest[0]!r}; a command goes behind two dashes: reprokit"
            f" capture -- {target} {' '.join(rest)}"
        )
    if sum(x is not None for x in (target, model, command)) != 1:
        given = "more than one" if target or model or command is not None else "no"
        raise BadInput(
            f"{given} target was given; name one: --model NAME, file.py:factory, or -- COMMAND"
        )
    knobs = {k: options[k] for k in core_knobs.OWN_OPTION if options[k] is not None}
    knobs |= core_knobs.read_options(options["settings"])
    compile_with = {k: options[k] for k in ("mode", "backend", "dynamic") if options[k] is not None}
    if options["fullgraph"]:
        compile_with["fullgraph"] = True
    watching = {
        "deadline_s": options["timeout"] or (DEADLINE_S if command is None else None),
        "stall_s": options["stall"],
        "on_stall": options["on_stall"] or "",
        "grace_s": options["grace"],
        "line_repeats": options["line_repeats"],
        "escalate": options["escalate"],
        "most_breaks": options["graph_breaks"],
        "compares": command is None if options["compare"] is None else options["compare"],
        "minimizes": options["minimize"],
        "rungs": "few" if options["ablate"] else "none",
        "budget_s": options["budget"],
        "proofs": options["proofs"],
    }
    if command is not None:
        _refuse_with_command(ctx)
        return Request(
            parse_command(command),
            **watching,
            logs=_logs(options["logs"]),
            has_trace=not options["no_trace"],
        )
    parsed = parse_target(str(target or model))
    gpu = simulated_gpu.find_gpu(options["gpu"]) if options["gpu"] is not None else None
    if gpu is not None and options["weights"] == "real":
        raise BadInput("--weights real cannot be used with --gpu: on a simulated GPU nothing runs")
    if gpu is not None and not str(options["device"] or "cuda").startswith("cuda"):
        raise BadInput(
            f"--device {options['device']} cannot be used with --gpu, which compiles for cuda"
        )
    # a command names its own interpreter
    python = (
        interpreter.check_interpreter(options["python"])
        if command is not None
        else shared.interpreter_option(options["python"])
    )
    if gpu is not None:
        agent_question.check_simulation(python, gpu)
    beside = (
        simulated_gpu.gpu_to_compare(python, gpu, options["device"])
        if options["compare_simulated"]
        else None
    )
    if parsed.kind == "zoo":
        core_knobs.check_options(parsed.name, knobs, ZOO[parsed.name].knobs)
        if options["train"] and not ZOO[parsed.name].can_train:
            raise BadInput(
                f"{parsed.name} decodes, so it cannot be used with --train; llama-tiny can"
            )
    return Request(
        parsed,
        python=python,
        beside=beside,
        **watching,
        knobs=knobs,
        compile=compile_with,
        train=options["train"],
        device=options["device"] or ("cuda" if beside is not None else None),
        weights=_weights(parsed, knobs, options),
        gpu=gpu,
        tensor_parallel=options["tensor_parallel"] or 0,
        kernels=options["kernels"],
        logs=_logs(options["logs"]),
        has_trace=not options["no_trace"],
    )


def _weights(parsed: Any, knobs: dict[str, Any], options: dict[str, Any]) -> str:
    """What is asked for; of several ranks on one machine each builds the whole model before it is
    split.
    """
    from reprokit.core.shared import zoo
    from reprokit.host.environment import simulated_gpu

    asked = str(options["weights"])
    if options["tensor_parallel"] is None or asked != "auto" or parsed.kind != "zoo":
        return asked
    entry = zoo.ZOO[parsed.name]
    needed = (
        zoo.needed_bytes(entry, {**entry.knobs, **knobs}, options["train"])
        * options["tensor_parallel"]
    )
    return asked if simulated_gpu.can_hold(needed) else "fake"


def _refuse_with_command(ctx: click.Context) -> None:
    """Options that only shape a factory target must not be silently ignored."""
    from click.core import ParameterSource

    from reprokit.core.shared.errors import BadInput

    shaping = (
        "layers",
        "batch_size",
        "sequence_length",
        "dtype",
        "settings",
        "mode",
        "backend",
        "dynamic",
        "fullgraph",
        "train",
        "device",
        "gpu",
        "tensor_parallel",
        "compare_simulated",
        "weights",
        "python",
    )
    used = [n for n in shaping if ctx.get_parameter_source(n) is ParameterSource.COMMANDLINE]
    spelled = {"settings": "--set", "tensor_parallel": "--tensor-parallel-gpus"}
    if used:
        raise BadInput(
            f"{spelled.get(used[0], '--' + used[0].replace('_', '-'))} shapes a model, and a"
            " command runs as it is; put it into the command, or leave it out"
        )


def _logs(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(n.strip() for v in values for n in v.split(",") if n.strip())


def refusal(why: str) -> dict[str, Any]:
    from reprokit.core.records.finding import Verdict
    from reprokit.core.shared.contract.serialize import to_json

    empty = dict.fromkeys(k for k in to_json(Verdict("", None, None, "")) if k != "evidence")
    rest = dict.fromkeys(
        ("run_dir", "pack", "issue", "repro", "report", "minimized", "seconds", "peak_rss_bytes")
    )
    return {
        "schema": 1,
        "verdict": empty,
        "signature": dict.fromkeys(("id", "title", "algorithm")),
        **rest,
        "missing": [{"what": "run", "why": why}],
    }
