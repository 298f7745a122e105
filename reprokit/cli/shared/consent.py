"""Nothing of a pack runs before a person has seen what would run, or said ``--yes``."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, terminal
from reprokit.core.shared.errors import BadInput

if TYPE_CHECKING:
    from reprokit.host.minimize import minimization
    from reprokit.host.pack import reopen
    from reprokit.host.probe.client import ProbeServer


def require_consent(pack: Path, is_agreed: bool) -> None:
    """Refuse early where nobody can be asked."""
    if not is_agreed and not sys.stdin.isatty():
        raise BadInput(
            f"{pack} holds programs, and somebody may have sent it to you; read them (reprokit show"
            f" {pack} --file NAME) and add --yes to run them"
        )


def ask_person(
    pack: Path, text: str, python: str, is_agreed: bool, live: terminal.LiveStatus | None = None
) -> None:
    """Show the programs and ask; raises BadInput without an answer, or with a no."""
    if is_agreed:
        return
    require_consent(pack, is_agreed)
    if live is not None:
        live.pause()
    out.PROGRESS.line(text)  # the whole text: the part that is cut off could matter
    if not out.confirm_question(f"Run this with {python}?"):
        raise BadInput("nothing was run")
    if live is not None:
        live.resume()


@contextlib.contextmanager
def has_agreed(
    opened: reopen.OpenedPack,
    word: str,
    python: str | None,
    is_agreed: bool,
    output_dir: Path | None,
    live: terminal.LiveStatus,
) -> Iterator[tuple[minimization.MinimizeCase, ProbeServer, Path]]:
    """Agree to run the program of a pack for ``word``, a command; gives its case, a server, and
    where to work.
    """
    from reprokit.host.minimize import minimization
    from reprokit.host.pack import reopen
    from reprokit.host.run import run_directory
    from reprokit.host.system import interrupts

    if opened.verdict.kind == "superlinear-compile":
        raise BadInput(
            f"{opened.pack.path} is of growth over several sizes; ask reprokit {word} of its target"
            " at one size (reprokit replay and minimize take the pack)"
        )
    if opened.kernel:
        raise BadInput(
            f"{opened.pack.path} is of one Triton kernel, which {word} has nothing to ask of;"
            " reprokit kernel tries its repro.py for other architectures and ptxas"
        )
    checked = shared.interpreter_option(python)
    with interrupts.deferred():
        run = run_directory.create_run(output_dir, f"{word}-{opened.verdict.kind}")
        try:
            case = reopen.case_of_pack(opened, run, checked)
            with minimization.server_of(case) as server, interrupts.allowed():
                ask_person(opened.pack.path, opened.program, checked, is_agreed, live)
                yield case, server, run.path
        finally:
            run.release()
