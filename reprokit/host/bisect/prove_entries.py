"""Run the programs of a catalogue with each version of torch, and compare with what it says.

Each program is captured as that of a user would be, so that its signature is the one that users
get. A program that passes is run once more if the entry says that it fails.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.triage import known_failures
from reprokit.core.triage.known_failures import KnownFailure, ProvedRun
from reprokit.host.bisect import torch_environments
from reprokit.host.system import files, host_log
from reprokit.host.system.child_output import CommandFailed, run_for_output

LIMIT_S = 600.0
"""A capture that takes longer gives no answer."""
STALL_S, TIMEOUT_S = 20, 60
"""Limits of a capture: programs of a catalogue take seconds."""
START = "import sys; sys.argv[0] = 'reprokit'; from reprokit.cli.main import main; main()"
PYTHON_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
VERSION_LIMIT_S = 60.0
NO_ANSWER = "no answer"
WORKS, FAILS = "works", "fails"


@dataclass(frozen=True)
class ProvedEntry:
    """The run of an entry with one version of torch."""

    entry: KnownFailure
    run: ProvedRun

    @property
    def recorded(self) -> ProvedRun | None:
        """The recorded run with the same version; None if there is none."""
        return next((run for run in self.entry.runs if run.torch == self.run.torch), None)

    @property
    def is_true(self) -> bool:
        """Whether the entry says what happened; True where it says nothing about the version."""
        recorded = self.recorded
        return recorded is None or self.run.answer in (recorded.answer, NO_ANSWER)

    def updated(self, entry: KnownFailure) -> KnownFailure:
        """Return an entry with this run instead of its recorded one, unless it has no answer."""
        if self.run.answer == NO_ANSWER:
            return entry
        runs = [run for run in entry.runs if run.torch != self.run.torch]
        runs.append(self.run)
        runs.sort(key=lambda run: known_failures.version_key(run.torch))
        return dataclasses.replace(entry, runs=tuple(runs))


def prove_entries(entries: Sequence[KnownFailure], python: str) -> Iterator[ProvedEntry]:
    """Run each entry with the torch of ``python``, and yield what happened.

    Raises:
        CannotInstall: ``python`` has no torch.
    """
    torch = torch_environments.imported_torch_version(python).partition("+")[0]
    version = run_for_output([python, "-I", "-c", PYTHON_VERSION], VERSION_LIMIT_S).strip()
    blank = ProvedRun(torch, NO_ANSWER, datetime.date.today().isoformat(), version)
    for entry in entries:
        if entry.program:
            yield ProvedEntry(entry, _prove_entry(entry, python, blank))


def _prove_entry(entry: KnownFailure, python: str, blank: ProvedRun) -> ProvedRun:
    run = _run_program(entry, entry.program, python, blank)
    if run.answer == known_failures.PASSES and entry.failing:
        run = _run_program(entry, entry.program, python, blank)
    if run.answer != known_failures.FAILS or not _is_code(entry.workaround):
        return run
    changed = _with_workaround(entry.program, entry.workaround)
    again = _run_program(entry, changed, python, blank)
    if again.answer == NO_ANSWER:
        return run
    works = WORKS if again.answer == known_failures.PASSES else FAILS
    return dataclasses.replace(run, workaround=works)


def _run_program(entry: KnownFailure, program: str, python: str, blank: ProvedRun) -> ProvedRun:
    """Return how one capture of a program ended."""
    with tempfile.TemporaryDirectory(prefix="reprokit-known-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        script = files.write_atomically(folder / "program.py", program)
        words = ["capture", "--json", "--no-minimize", "--stall", str(STALL_S)]
        words += ["--timeout", str(TIMEOUT_S), "--output-dir", str(folder / "out")]
        words += ["--ablate"] if kind_named(entry.kind).compares_results else []
        words += ["--graph-breaks", "0"] if entry.kind == "graph-break" else []
        words += ["--gpu", entry.gpu] if entry.gpu else []
        command = [sys.executable, "-c", START, "--isolated", *words, "--", python, str(script)]
        try:
            output = run_for_output(command, LIMIT_S, folders=(folder,), statuses=(0, 1))
            answer: dict[str, Any] = json.loads(output)
            return _read_answer(blank, entry, answer)
        except (CommandFailed, ValueError, KeyError) as problem:
            host_log.log_ignored(problem)
            return blank


def _read_answer(blank: ProvedRun, entry: KnownFailure, answer: dict[str, Any]) -> ProvedRun:
    """Return the run that a capture reports."""
    verdict, signature = answer["verdict"], answer["signature"]
    kind = str(verdict["kind"])
    if kind == "ok":
        return dataclasses.replace(blank, answer=known_failures.PASSES)
    if kind == "unknown":
        return blank
    is_same_kind = kind == entry.kind or all(kind_named(one).is_slow for one in (kind, entry.kind))
    return dataclasses.replace(
        blank,
        answer=known_failures.FAILS if is_same_kind else f"different: {signature['title']}",
        algorithm=int(signature["algorithm"]),
        signature=str(signature["id"]),
        title=str(signature["title"]),
        frames=tuple(map(str, answer["traits"].get("frames", ()))),
    )


def _is_code(workaround: str) -> bool:
    """Return whether a workaround is a program that does something, and not a clause."""
    if "=" not in workaround and "(" not in workaround:
        return False
    try:
        compile(workaround, "workaround", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _with_workaround(program: str, workaround: str) -> str:
    """Return a program that begins with a workaround."""
    modules = ("torch", "torch._inductor.config", "torch._dynamo.config")
    return "\n".join([*(f"import {name}" for name in modules), workaround, program])
