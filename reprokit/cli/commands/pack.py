"""``reprokit pack``: judge and pack a run directory again."""

from __future__ import annotations

from pathlib import Path

import click

from reprokit.cli.shared import option_types, out
from reprokit.cli.shared import options as shared


@shared.command()
@click.argument("run_dir", type=option_types.RunPath())
@shared.JSON
@click.pass_context
def pack(ctx: click.Context, run_dir: Path, as_json: bool) -> None:
    """Judge RUN_DIR again from its files, and write a pack beside it.

    Use it for a capture that was killed, or whose disk was full: the run directory has the evidence
    up to then. The target does not run again; only the facts about this machine are collected.

    \b
    Examples:
      reprokit pack reprokit-out/train-20261121-101500-4242/run-001
    """
    from reprokit.cli.shared import print_capture
    from reprokit.host.pipeline import pipeline

    captured = pipeline.repack_run(run_dir, (lambda text: None) if as_json else out.print_note)
    if as_json:
        out.RESULTS.print_json(captured.to_json())
    else:
        print_capture.print_captured(captured)
    ctx.exit(captured.exit_code)
