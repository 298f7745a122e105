"""``reprokit pack``: judge and pack a run directory again."""

from __future__ import annotations

from pathlib import Path

import click

from reprokit.cli.shared import out


@click.command()
@click.argument("run_dir", type=click.Path(path_type=Path))
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
@click.pass_context
def pack(ctx: click.Context, run_dir: Path, as_json: bool) -> None:
    """Judge RUN_DIR again from what is on disk, and leave a pack beside it.

    For a capture that was killed, or whose disk was full: the evidence up to then is in the run
    directory. Nothing is run again but the questions about this machine's environment.

    \b
    Examples:
      reprokit pack reprokit-out/train-20261121-101500-4242/run-001
    """
    from reprokit.cli.commands.capture import exit_code
    from reprokit.cli.shared import print_capture
    from reprokit.host.pipeline import pipeline as line

    captured = line.repack(run_dir, (lambda text: None) if as_json else out.print_line)
    if as_json:
        out.RESULTS.json(captured.to_json())
    else:
        print_capture.captured_run(captured)
    ctx.exit(exit_code(captured.verdict))
