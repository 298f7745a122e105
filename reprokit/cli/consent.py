"""Nothing of a pack runs before a person has seen what would run, or said ``--yes``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.records import BadInput
from . import options as shared
from . import out, screen

if TYPE_CHECKING:
    from ..host import again, minimize
    from ..host.forked import Server


def require(pack: Path, is_agreed: bool) -> None:
    """Refuse early where nobody can be asked."""
    if not is_agreed and not sys.stdin.isatty():
        raise BadInput(
            f"{pack} holds programs, and somebody may have sent it to you; read them (reprokit show {pack} --file NAME) and add --yes to run them"
        )


def ask(pack: Path, text: str, python: str, is_agreed: bool, live: screen.Live | None = None) -> None:
    """Show the programs and ask; raises BadInput without an answer, or with a no."""
    if is_agreed:
        return
    require(pack, is_agreed)
    if live is not None:
        live.pause()
    out.PROGRESS.line(text)  # the whole text: the part that is cut off could matter
    if not out.confirm(f"Run this with {python}?"):
        raise BadInput("nothing was run")
    if live is not None:
        live.resume()


@contextlib.contextmanager
def agreed(
    opened: again.Opened, word: str, python: str | None, is_agreed: bool, output_dir: Path | None, live: screen.Live
) -> Iterator[tuple[minimize.Case, Server, Path]]:
    """Agree to run the program of a pack for ``word``, a command; gives its case, a server, and where to work."""
    from ..host import again, interrupts, minimize, rundir

    if opened.verdict.kind == "superlinear-compile":
        raise BadInput(
            f"{opened.pack.path} is of growth over several sizes; ask reprokit {word} of its target at one size (reprokit replay and minimize take the pack)"
        )
    if opened.kernel:
        raise BadInput(
            f"{opened.pack.path} is of one Triton kernel, which {word} has nothing to ask of; reprokit kernel tries its repro.py for other architectures and ptxas"
        )
    checked = shared.interpreter(python)
    with interrupts.held():
        run = rundir.create(output_dir, f"{word}-{opened.verdict.kind}")
        try:
            case = again.case_of_pack(opened, run, checked)
            with minimize.server_of(case) as server, interrupts.heard():
                ask(opened.pack.path, opened.program, checked, is_agreed, live)
                yield case, server, run.path
        finally:
            run.release()
