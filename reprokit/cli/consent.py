"""Nothing of a pack runs before a person has seen what would run, or said ``--yes``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..core.records import BadInput
from . import screen

MOST_CHARS = 20_000


def ask(pack: Path, text: str, python: str, is_agreed: bool, live: screen.Live | None = None) -> None:
    """Show the programs and ask; raises BadInput without an answer, or with a no."""
    if is_agreed:
        return
    if not sys.stdin.isatty():
        raise BadInput(
            f"{pack} holds programs, and somebody may have sent it to you; read them (reprokit show {pack} --file repro.py) and add --yes to run them"
        )
    if live is not None:
        live.pause()
    shown = screen.safe(text)
    if len(shown) > MOST_CHARS:
        shown = f"{shown[:MOST_CHARS]}\n<<{len(shown) - MOST_CHARS} more characters; reprokit show {pack} --file NAME>>"
    click.echo(shown, err=True)
    if not click.confirm(f"Run this with {python}?", default=False, err=True):
        raise BadInput("nothing was run")
    if live is not None:
        live.resume()
