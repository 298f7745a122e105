"""``reprokit attach``: find out why a running process does not advance."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import consent, option_types, out, terminal
from reprokit.cli.shared import options as shared

if TYPE_CHECKING:
    from reprokit.host.pipeline.attach_pipeline import Attached


@shared.command(
    epilog=(
        "Exit codes: 0 the process advances or is idle, 1 it hangs, 2 wrong usage, 3 unknown, 130"
        " interrupted."
    )
)
@click.argument("pid", type=shared.at_least(2), required=False)
@shared.MATCH
@shared.option(
    "--slurm-job",
    "job",
    metavar="ID",
    help="The process of this Slurm job on this node.",
)
@shared.option(
    "--stall",
    type=option_types.SECONDS,
    default="30",
    show_default=True,
    help="No progress for this long is a hang. The first answer comes earlier.",
)
@shared.option(
    "--stalled-for",
    type=option_types.SECONDS,
    help="How long it has made no progress already, for example by its log.",
)
@shared.option(
    "--observe",
    type=option_types.SECONDS,
    help="Observe for this long in any case. The default is until the verdict cannot change.",
)
@shared.PORTS
@shared.option(
    "--native",
    is_flag=True,
    help="Read native frames too, which stops the process for about 0.2 s.",
)
@shared.option(
    "--tasks",
    is_flag=True,
    help=(
        "Record what the tasks of asyncio wait for. This runs code inside the process, so reprokit"
        " asks first; a program that called reprokit.watch() needs no --tasks."
    ),
)
@shared.option(
    "--graphs",
    is_flag=True,
    help=(
        "Record the graphs that the process compiles, and minimize them. This runs code inside the"
        " process, so reprokit asks first."
    ),
)
@shared.option(
    "--budget",
    type=option_types.SECONDS,
    default="5m",
    show_default=True,
    help="With --graphs: time for the minimization without its proof.",
)
@shared.option(
    "--yes", is_flag=True, help="With --tasks and --graphs: run the code without asking."
)
@shared.option(
    "--then",
    type=click.Choice(["continue", "end"]),
    default="continue",
    show_default=True,
    help="What happens to the process after its pack is written.",
)
@shared.option(
    "--grace",
    type=option_types.SECONDS,
    default="10",
    show_default=True,
    help="With --then end: time between SIGTERM and SIGKILL.",
)
@shared.OUTPUT_DIR
@shared.JSON
@click.pass_context
def attach(
    ctx: click.Context,
    pid: int | None,
    name: str | None,
    job: str | None,
    stall: float,
    stalled_for: float | None,
    observe: float | None,
    ports: tuple[int, ...],
    native: bool,
    tasks: bool,
    graphs: bool,
    budget: float,
    yes: bool,
    then: str,
    grace: float,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Find out why a running process does not advance, and write a pack.

    The process was started without reprokit: it hangs now, on this machine. reprokit reads its
    stacks, and those of all processes below it, three times from outside, and what the kernel
    reports. It does not stop, signal or slow the process, and writes nothing into its working
    directory. For torchrun and other launchers, give the PID of the launcher.

    \b
    Examples:
      reprokit attach 4242
      reprokit attach --match train.py --graphs --yes
      reprokit attach --slurm-job 1234567 --stall 10m --then end
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.attach import find_process
    from reprokit.host.attach.inside import run_inside
    from reprokit.host.pipeline import attach_pipeline
    from reprokit.host.pipeline.state import Callbacks

    if sum(word is not None for word in (pid, name, job)) != 1:
        raise BadInput("name one process: a PID, --match NAME or --slurm-job ID")
    chosen = find_process.find_process(pid, name, job)
    if graphs or tasks:
        what = "tasks of asyncio" if not graphs else "graphs and tasks" if tasks else "graphs"
        _ask_consent(chosen, what, run_inside.describe_way(chosen), yes)
    options = attach_pipeline.AttachOptions(
        stall_s=stall,
        stalled_s=stalled_for or 0.0,
        observe_s=observe or 0.0,
        records_tasks=tasks,
        ports=ports,
        has_native_frames=native,
        records_graphs=graphs,
        budget_s=budget,
        ends_process=then == "end",
        grace_s=grace,
    )
    with terminal.LiveStatus(is_quiet=as_json) as live:
        attached = attach_pipeline.attach_to_process(
            chosen,
            output_dir,
            options,
            Callbacks(live.show_message, show_status=live.show_status),
        )
    if as_json:
        out.RESULTS.print_json(to_json(attached))
    else:
        print_attached(attached)
    ctx.exit(attached.captured.exit_code)


def _ask_consent(pid: int, recorded: str, way: str, is_agreed: bool) -> None:
    """Ask for consent to run code inside a process; raises NoConsent without it."""
    what = f"to record the {recorded} of process {pid}, {way} that writes them"
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise consent.NoConsent(f"{what}; add --yes to allow it")
    if not out.confirm_question(f"{what}. Allow it?"):
        raise consent.NoConsent("nothing was run")


def to_json(attached: Attached) -> dict[str, Any]:
    """Return the object that ``--json`` prints; later versions only add keys."""
    program = attached.program
    process = {
        "pid": program.pid,
        "argv": program.visible_argv,
        "cwd": program.cwd or None,
        "python": program.python or None,
        "capture": program.command_again,
        "first_answer_s": attached.first_answer_s,
        "has_ended": attached.has_ended_it,
    }
    return {**attached.captured.to_json(), "process": process}


def print_attached(attached: Attached) -> None:
    """Print the verdict, the paths, and the command that captures the program from its start."""
    from reprokit.cli.shared import print_capture

    print_capture.print_captured(attached.captured)
    out.RESULTS.print_line(f"capture    {attached.program.command_again}")
    if attached.has_ended_it:
        out.RESULTS.print_line(f"ended      process {attached.program.pid}")
