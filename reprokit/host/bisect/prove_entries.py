"""Run the programs of a catalogue with each version of torch, and compare with what it says.

Programs run in forked children of one process that has imported torch, as the probes of a reduction
do. Their signatures are those that a capture gives.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.judge import same_failure
from reprokit.core.records.finding import Identity, Signature
from reprokit.core.records.verdict_kinds import FAILED_CHECK, kind_named
from reprokit.core.shared.contract.serialize import from_json
from reprokit.core.triage import known_failures, traits
from reprokit.core.triage.known_failures import KnownFailure, ProvedRun
from reprokit.core.triage.likeness import Traits
from reprokit.host.bisect import torch_environments
from reprokit.host.minimize import locate
from reprokit.host.probe.candidate import CandidateResult, ProbeLimits, probe_limits_for
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.probe.forked_child import run_in_forked_child
from reprokit.host.system import deletion, files, host_log
from reprokit.host.system.child_commands import CommandFailed, own_command, run_for_output

LIMIT_S = 600.0
"""A capture that takes longer gives no answer."""
STALL_S, TIMEOUT_S = 20, 60
"""Limits of a capture: programs of a catalogue take seconds."""
PYTHON_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
VERSION_LIMIT_S = 60.0
ANY_PHASE = "unknown"
"""The phase of a signature that only asks where wrong results begin."""
NO_ANSWER = "no answer"


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
    def is_answer_true(self) -> bool:
        """Whether the entry says how the run ended, or nothing about this version of torch."""
        return self.recorded is None or self.run.answer in (self.recorded.answer, NO_ANSWER)

    @property
    def is_true(self) -> bool:
        """Whether the entry says what happened, and its workaround avoids the failure."""
        return self.is_answer_true and self.run.workaround != known_failures.FAILS

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
    with (
        tempfile.TemporaryDirectory(prefix="reprokit-known-", ignore_cleanup_errors=True) as folder,
        ProbeServer(Path(folder) / "server", python, "build") as server,
    ):
        prover = _Prover(python, server, Path(folder), blank)
        for entry in entries:
            if entry.program:
                yield ProvedEntry(entry, prover.prove(entry))


@dataclass(frozen=True)
class _Prover:
    """Runs programs with one interpreter."""

    python: str
    server: ProbeServer
    folder: Path
    blank: ProvedRun

    def prove(self, entry: KnownFailure) -> ProvedRun:
        """Return how the program of an entry ended, and whether its workaround works."""
        run = self._run_program(entry, entry.program)
        changed = _with_workaround(entry)
        if run.answer != known_failures.FAILS or not changed:
            return run
        again = self._run_program(entry, changed)
        if again.answer == NO_ANSWER:
            return run
        is_avoided = again.answer == known_failures.PASSES
        answer = known_failures.WORKS if is_avoided else known_failures.FAILS
        return dataclasses.replace(run, workaround=answer)

    def _run_program(self, entry: KnownFailure, program: str) -> ProvedRun:
        """Return how a program ended in a forked child, or else in a process of its own.

        A program that is slow, hangs, needs a GPU or checks itself, or passes although the entry
        says that it fails, gets a process of its own.
        """
        needs_own = kind_named(entry.kind).is_slow or entry.kind == FAILED_CHECK
        if not (needs_own or entry.gpu):
            run = self._run_in_child(entry, program)
            if run.answer != known_failures.PASSES or not entry.failing:
                return run
        return _capture(entry, program, self.python, self.folder / "capture", self.blank)

    def _run_in_child(self, entry: KnownFailure, program: str) -> ProvedRun:
        limits = probe_limits_for(entry.kind, float(STALL_S))
        wanted = Signature("", entry.kind, 0, parts=Identity(entry.kind))
        try:
            judged = run_in_forked_child(self.server, program, wanted, limits, self.python)
            if judged.verdict.kind == entry.kind and limits.compares:
                judged = self._located(program, judged, limits)
        except ServerLost as problem:
            host_log.log_ignored(problem)
            return self.blank
        shown = traits.traits_of_failure(judged.verdict, judged.seen, judged.signature)
        return _as_run(self.blank, entry, judged.verdict.kind, judged.signature, shown)

    def _located(
        self, program: str, judged: CandidateResult, limits: ProbeLimits
    ) -> CandidateResult:
        """Return wrong results with the part of the compiler and the operator where they begin."""
        parts = dataclasses.replace(judged.signature.parts, phase=ANY_PHASE)
        wanted = dataclasses.replace(judged.signature, parts=parts)
        check = locate.LocationCheck(self.server, program, wanted, limits, self.python)
        return check(dataclasses.replace(judged, answer=same_failure.SAME))


def _capture(
    entry: KnownFailure, program: str, python: str, folder: Path, blank: ProvedRun
) -> ProvedRun:
    """Capture a program in a process of its own, as its user does; ``folder`` is written."""
    deletion.delete_path(folder, inside=folder.parent)
    folder.mkdir()
    script = files.write_atomically(folder / "program.py", program)
    words = ["capture", "--json", "--no-minimize", "--stall", str(STALL_S)]
    words += ["--timeout", str(TIMEOUT_S), "--output-dir", str(folder / "out")]
    words += ["--fail-on", "graph-break"] if entry.kind == "graph-break" else []
    words += ["--gpu", entry.gpu] if entry.gpu else []
    command = own_command("reprokit", "--isolated", *words, "--", python, str(script))
    try:
        output = run_for_output(command, LIMIT_S, folders=(folder,), statuses=(0, 1))
        answer: dict[str, Any] = json.loads(output)
        signature, shown = answer["signature"], from_json(Traits, answer["traits"])
        signed = Signature(signature["id"], signature["title"], signature["algorithm"])
        return _as_run(blank, entry, str(answer["verdict"]["kind"]), signed, shown)
    except (CommandFailed, ValueError, KeyError) as problem:
        host_log.log_ignored(problem)
        return blank


def _as_run(
    blank: ProvedRun, entry: KnownFailure, kind: str, signature: Signature, shown: Traits
) -> ProvedRun:
    """Return a verdict and its signature as the run of an entry."""
    if kind == "ok":
        return dataclasses.replace(blank, answer=known_failures.PASSES)
    if kind == "unknown":
        return blank
    is_same_kind = kind == entry.kind or all(kind_named(one).is_slow for one in (kind, entry.kind))
    return dataclasses.replace(
        blank,
        answer=known_failures.FAILS if is_same_kind else f"different: {signature.title}",
        algorithm=signature.algorithm,
        signature=signature.id,
        title=signature.title,
        frames=shown.frames,
        kernel=shown.kernel,
    )


def _is_code(workaround: str) -> bool:
    """Return whether a workaround is a program that does something, and not a clause."""
    if "=" not in workaround and "(" not in workaround:
        return False
    with host_log.suppress(SyntaxError, ValueError):
        compile(workaround, "workaround", "exec")
        return True
    return False


def _with_workaround(entry: KnownFailure) -> str:
    """Return the program with its workaround; empty for a workaround that is only words."""
    if entry.workaround_program or not _is_code(entry.workaround):
        return entry.workaround_program
    modules = ("torch", "torch._inductor.config", "torch._dynamo.config", "torch._functorch.config")
    return "\n".join([*(f"import {name}" for name in modules), entry.workaround, entry.program])
