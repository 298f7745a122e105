"""``reprokit merge``: say which rank of a distributed program the others wait for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, terminal
from reprokit.core.judge.stacks.location import plural

if TYPE_CHECKING:
    from reprokit.host.merge.merge_ranks import Merged

MAX_SHOWN = 12


@shared.command(
    epilog=(
        "Exit codes: 0 no rank differs, also if all wait in one call, 1 the odd ranks are named, 2"
        " wrong usage, 3 the ranks do not agree, and nothing decides which is the odd one."
    )
)
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path)
)
@shared.JSON
@click.pass_context
def merge(ctx: click.Context, folders: tuple[Path, ...], as_json: bool) -> None:
    """Say which rank of a distributed program the others wait for, and since when.

    The folders have the packs that reprokit attach or capture wrote on each node, the dumps of
    torch's flight recorder (TORCH_FR_DUMP_TEMP_FILE, of NCCL and gloo, as pickle or JSON, with the
    rank at the end of the name), the stacks that torch.distributed.debug dumps (stacks_TIME.txt),
    the output of torchrun (.log, .txt, .out, .err), which says how ranks ended, or all of them. The
    dumps are read without unpickling them.

    \b
    Examples:
      reprokit merge node1/reprokit-out node2/reprokit-out
      reprokit merge /tmp/flight_recorder
    """
    from reprokit.host.merge import merge_ranks

    with terminal.LiveStatus(is_quiet=as_json) as live:
        merged = merge_ranks.merge_folders(folders, live.show_status)
    if as_json:
        out.RESULTS.print_json(to_json(merged))
    else:
        print_merged(merged)
    ctx.exit(exit_code(merged))


def to_json(merged: Merged) -> dict[str, Any]:
    """Return the object that ``--json`` prints; later versions only add keys."""
    from dataclasses import asdict

    return {"schema": 1, **asdict(merged)}


def exit_code(merged: Merged) -> int:
    """Return 1 if the odd ranks are known, and 3 if the ranks only disagree."""
    if merged.is_sure:
        return 1 if merged.odd else 0
    return 3


def print_merged(merged: Merged) -> None:
    """Print the answer, and what each group of ranks does, the odd ones first."""
    from reprokit.core.ranks.rank_names import rank_ranges

    out.RESULTS.print_line(merged.reason)
    for group in merged.groups[:MAX_SHOWN]:
        name = "odd" if group.is_odd and merged.is_sure else "ranks"
        out.RESULTS.print_line(f"{name:<10} {rank_ranges(group.ranks)}: {group.doing}")
    if len(merged.groups) > MAX_SHOWN:
        out.RESULTS.print_line(f"and {plural(len(merged.groups) - MAX_SHOWN, 'more group')}")
    if merged.graphs_differ:
        out.RESULTS.print_line(f"graphs     {merged.graphs_differ}")
    if merged.without_data:
        out.RESULTS.print_line(f"no data    {rank_ranges(merged.without_data)}")
    for line in merged.skipped[:MAX_SHOWN]:
        out.RESULTS.print_line(f"skipped    {line}")
