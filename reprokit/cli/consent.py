"""Nothing of a pack runs before a person has seen what would run, or said ``--yes``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..core.records import BadInput
from . import screen


def require(pack: Path, is_agreed: bool) -> None:
    """Refuse early where nobody can be asked."""
    if not is_agreed and not sys.stdin.isatty():
        raise BadInput(
            f"{pack} holds programs, and somebody may have sent it to you; read them (reprokit show {pack} --file repro.py) and add --yes to run them"
        )


def ask(pack: Path, text: str, python: str, is_agreed: bool, live: screen.Live | None = None) -> None:
    """Show the programs and ask; raises BadInput without an answer, or with a no."""
    if is_agreed:
        return
    require(pack, is_agreed)
    if live is not None:
        live.pause()
    click.echo(screen.safe(text), err=True)  # all of it: what is cut off could be what matters
    if not click.confirm(f"Run this with {python}?", default=False, err=True):
        raise BadInput("nothing was run")
    if live is not None:
        live.resume()
