"""``reprokit watch``: watch a service for days, and write a pack when it locks up."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import option_types, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.core.judge.stacks.location import plural

if TYPE_CHECKING:
    from reprokit.host.service.watch_loop import WatchResult


@shared.target_command(
    epilog=(
        "Exit codes: with a command, that of the command; with a PID, 0 there was no lock-up,"
        " 1 there was a lock-up, 2 wrong usage."
    )
)
@click.argument("pid", type=shared.at_least(2), required=False)
@shared.MATCH
@shared.option(
    "--stall",
    type=option_types.SECONDS,
    default="2m",
    show_default=True,
    help="Report a lock-up at most this long after it began.",
)
@shared.option(
    "--packs",
    type=shared.at_least(0),
    default=5,
    show_default=True,
    help="Keep at most this many packs, one per signature; later lock-ups are only reported.",
)
@shared.PORTS
@shared.OUTPUT_DIR
@shared.JSON
@click.pass_context
def watch(
    ctx: click.Context,
    pid: int | None,
    name: str | None,
    stall: float,
    packs: int,
    ports: tuple[int, ...],
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Watch a service for days, and write a pack for each new lock-up.

    A lock-up is a process that makes no progress in the compiler, in compiled code, in a collective
    or in a lock, or requests that wait while nothing runs. An idle process has not locked up.
    reprokit reads the process and all processes below it from outside, never stops or ends them,
    and goes on after a lock-up.

    A command after -- runs unchanged, with your terminal. reprokit passes signals on to it, and
    ends with its exit status. With --json, its output goes to stderr.

    \b
    Examples:
      reprokit watch 4242
      reprokit watch --match api_server --stall 5m
      reprokit watch -- python serve.py --port 8000
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.attach import find_process
    from reprokit.host.request.target import parse_command, refuse_missing_script
    from reprokit.host.service import watch_loop
    from reprokit.host.service.service_watch import WatchOptions

    command = ctx.meta.get("command")
    if sum(word is not None for word in (pid, name, command)) != 1:
        raise BadInput("name one process: a PID, --match NAME or -- COMMAND")
    options = WatchOptions(stall, packs, ports)
    with terminal.LiveStatus(is_plain=True) as live:
        if command is not None:
            parse_command(command)
            refuse_missing_script(command)
            label = Path(command[0]).name
            output = watch_loop.create_output(output_dir, label)
            result = watch_loop.watch_command(
                command, output, options, live.show_message, 2 if as_json else None
            )
        else:
            chosen = find_process.find_process(pid, name)
            output = watch_loop.create_output(output_dir, str(chosen), chosen)
            result = watch_loop.watch_process(chosen, output, options, live.show_message)
        live.show_message(describe_end(result))
    if as_json:
        out.RESULTS.print_json(to_json(result, output))
    ctx.exit(exit_code(result))


def to_json(result: WatchResult, output: Path) -> dict[str, Any]:
    """Return the object that ``--json`` prints; later versions only add keys."""
    from dataclasses import asdict

    return {"schema": 1, **asdict(result), "output": str(output)}


def exit_code(result: WatchResult) -> int:
    """Return the status of the command, as a shell reports it, or whether there was a lock-up."""
    if result.exit_status is not None:
        return result.exit_status if result.exit_status >= 0 else 128 - result.exit_status
    return 1 if result.lock_ups else 0


def describe_end(result: WatchResult) -> str:
    """Return one line about the whole watch."""
    what = "command" if result.exit_status is not None else "process"
    end = "goes on; the watch ended" if result.is_interrupted else "ended"
    lock_ups = plural(len(result.lock_ups), "lock-up")
    packs = plural(sum(bool(one.pack) for one in result.lock_ups), "pack")
    return (
        f"{what} {result.pid} {end} after {result.seconds:.0f} s: {lock_ups}, {packs}; the watch"
        f" used {result.cpu_s:.1f} CPU-seconds"
    )
