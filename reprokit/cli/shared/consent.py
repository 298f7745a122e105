"""Ask for consent before a program of a pack runs; ``--yes`` gives it in advance."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, terminal
from reprokit.core.shared.errors import BadInput

if TYPE_CHECKING:
    from reprokit.host.minimize import cases
    from reprokit.host.pack import reopen
    from reprokit.host.probe.client import ProbeServer
    from reprokit.host.run.run_directory import RunDir
    from reprokit.host.scrub.jail import Jail


class NoConsent(BadInput):
    """A program of a pack needs the consent of the user."""

    code = "consent"


def require_consent(path: Path, is_agreed: bool, what: str = "") -> None:
    """Raise BadInput if there is no ``--yes`` and no terminal to ask for consent.

    ``what`` says what ``path`` has, and what to do before; by default that of a pack.
    """
    if not is_agreed and not sys.stdin.isatty():
        usual = (
            "programs that a stranger may have written; read them (reprokit show"
            f" {shlex.quote(str(path))} --file NAME)"
        )
        raise NoConsent(f"{path} has {what or usual} and add --yes to run them")


def find_jail(folder: Path, no_jail: bool = False, has_option: bool = False) -> Jail:
    """Return the jail that works on this machine; raises BadInput without one, unless the user
    wants none. ``has_option`` says that the command has ``--no-jail``.
    """
    from reprokit.host.scrub import jail

    chosen = jail.Jail(jail.NONE) if no_jail else jail.find_jail(folder)
    if not chosen.kind and not no_jail:
        option = ", or run the program with your rights: --no-jail" if has_option else ""
        raise BadInput(
            f"no jail works on this machine ({chosen.why_not}); install bubblewrap{option}"
        )
    return chosen


@contextlib.contextmanager
def deleted_if_refused(run: RunDir) -> Iterator[None]:
    """Delete a run directory in which nothing ran because the input was refused."""
    try:
        yield
    except BadInput:
        run.delete_run()
        raise


def ask_consent(
    pack: Path, text: str, python: str, is_agreed: bool, live: terminal.LiveStatus | None = None
) -> None:
    """Show the programs and ask for consent; raises BadInput without it."""
    if is_agreed:
        return
    require_consent(pack, is_agreed)
    if live is not None:
        live.pause()
    out.PROGRESS.print_line(text)  # the whole text, because any part of it may matter
    if not out.confirm_question(f"Run this with {python}?"):
        raise NoConsent("nothing was run")
    if live is not None:
        live.resume()


@contextlib.contextmanager
def open_consented(
    opened: reopen.OpenedPack,
    word: str,
    python: str | None,
    is_agreed: bool,
    output_dir: Path | None,
    live: terminal.LiveStatus,
) -> Iterator[tuple[cases.MinimizeCase, ProbeServer, Path]]:
    """Ask for consent to run the program of a pack; yield its case, a probe server and a folder.

    ``word`` is the command. Raises BadInput without consent, or for a pack that the command cannot
    use.
    """
    from reprokit.host.minimize import cases
    from reprokit.host.pack import reopen
    from reprokit.host.run import run_directory
    from reprokit.host.system import interrupts

    if opened.verdict.kind == "superlinear-compile":
        raise BadInput(
            f"{opened.pack.path} is about growth over several sizes; use reprokit {word} on its"
            " target at one size (reprokit replay and minimize take the pack)"
        )
    if opened.kernel:
        raise BadInput(
            f"{opened.pack.path} is about one Triton kernel, and {word} needs a model; reprokit"
            " kernel compiles its repro.py for other architectures and with other ptxas"
        )
    checked = shared.interpreter_option(python)
    with interrupts.deferred():
        run = run_directory.create_run_directory(output_dir, f"{word}-{opened.verdict.kind}")
        try:
            case = reopen.case_of_pack(opened, run, checked)
            with cases.create_probe_server(case) as server, interrupts.allowed():
                ask_consent(opened.pack.path, opened.program, checked, is_agreed, live)
                yield case, server, run.path
        finally:
            run.release_lock()
