"""Run the program of an issue with one torch after the other, all in the jail.

The first interpreter captures it: verdict, smallest program, proof. Interpreters after it run the
smallest program where there is one, and otherwise the program of the issue. So a failure is dated,
and a program that passes is compared with a torch in which it fails.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.records import bounded_json
from reprokit.core.records.finding import identity_of_title
from reprokit.core.reported import answers
from reprokit.core.reported.answers import CapturedRun, ReportAnswer
from reprokit.core.reported.issue_programs import FoundProgram
from reprokit.core.reported.reported_failure import ReportedCommand, ReportedFailure
from reprokit.core.shared.contract import run_names
from reprokit.core.triage.known_failures import KnownFailure, ProvedRun
from reprokit.host.bisect import torch_environments
from reprokit.host.scrub.jail import GPU_DEVICES, Jail
from reprokit.host.service.examination import START
from reprokit.host.system import files, host_log
from reprokit.host.system.child_output import CommandFailed, run_for_output

PROGRAM_FILE = "program.py"
STALL_S, TIMEOUT_S, BUDGET_S = 20, 120, 180
"""Limits of a capture: without progress, of the program, and of the reduction."""
LIMIT_S = 1_200.0
"""A capture or a replay that takes longer gives no answer."""
PASSES, FLAKY_PASSES = 2, 5
"""How many runs must pass; the second is for an issue that says that not each run fails."""
OF_REPLAY = {
    "same": answers.FAILS,
    "passes": answers.PASSES,
    "other": answers.DIFFERENT,
    "unresolved": answers.CANNOT_TELL,
}
MAX_PROGRAMS = 3
"""Programs of one issue that are run, until one fails as reported."""
_CUDA = re.compile(r"""\.cuda\(|["']cuda(?::\d)?["']|torch\.cuda\.""")
_WORST = (answers.FAILS, answers.DIFFERENT, answers.CANNOT_TELL, answers.PASSES)
"""Which answer counts if the programs of one issue have different ones, the first one first."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class IssueProgram:
    """What the text of an issue asks to run."""

    title: str
    program: FoundProgram
    command: ReportedCommand
    reported: ReportedFailure

    @property
    def names_gpu(self) -> bool:
        """Whether the program names a CUDA device."""
        return bool(_CUDA.search(self.program.text))


@dataclass(frozen=True)
class IssueRun:
    """The answer of one torch."""

    torch: str
    answer: str
    why: str
    runs: int = 1
    """How many runs gave this answer."""


@dataclass(frozen=True)
class ScrubResult:
    """All that is known about an issue."""

    runs: tuple[IssueRun, ...]
    """The first one is that of the first interpreter."""
    pack: Path | None = None
    """The pack of the failure, of the first torch that fails."""
    capture: dict[str, Any] = field(default_factory=dict)
    """What the capture of the failure printed as JSON."""

    @property
    def answer(self) -> str:
        """The answer of the first torch."""
        return self.runs[0].answer

    def dated(self, kind: str) -> KnownFailure:
        """Return the runs in the form of a catalogue, which names the first bad version."""
        runs = tuple(ProvedRun(run.torch.partition("+")[0], run.answer) for run in self.runs)
        return KnownFailure("", "", kind, "", runs=runs)


def run_programs(
    programs: Sequence[IssueProgram], jail: Jail, folder: Path, pythons: Sequence[str], say: Say
) -> tuple[IssueProgram, ScrubResult]:
    """Run the programs of an issue until one fails as reported; return the one that counts.

    Each has its own folder, which is the only one that the jail can write. Raises CannotInstall for
    an interpreter without torch.
    """
    results: list[tuple[IssueProgram, ScrubResult]] = []
    for number, issue in enumerate(programs[:MAX_PROGRAMS], 1):
        own = folder / f"program-{number}"
        own.mkdir(exist_ok=True)
        files.write_atomically(own / PROGRAM_FILE, issue.program.text)
        results.append((issue, _IssueRunner(issue, jail, own, say).run_all(pythons)))
        if results[-1][1].answer == answers.FAILS:
            break
    return min(results, key=lambda result: _WORST.index(result[1].answer))


@dataclass(frozen=True)
class _IssueRunner:
    """Runs one program."""

    issue: IssueProgram
    jail: Jail
    folder: Path
    say: Say

    def run_all(self, pythons: Sequence[str]) -> ScrubResult:
        """Return the answers of all interpreters."""
        results: list[IssueRun] = []
        failure: dict[str, Any] = {}
        for number, python in enumerate(pythons):
            torch = torch_environments.imported_torch_version(python)
            lines = " and ".join(map(str, self.issue.program.lines))
            self.say(f"running the program from line {lines} with torch {torch}")
            if failure.get("pack") and failure.get("repro"):
                results.append(self._replay(failure, python, torch))
            else:
                run, captured = self._capture_until_sure(python, torch, number)
                results.append(run)
                if run.answer == answers.FAILS:
                    failure = captured
            self.say(f"torch {torch}: {results[-1].answer} ({results[-1].why})")
        pack = failure.get("pack")
        return ScrubResult(tuple(results), Path(pack) if pack else None, failure)

    def _capture_until_sure(
        self, python: str, torch: str, number: int
    ) -> tuple[IssueRun, dict[str, Any]]:
        """Capture the program, and again while it passes and more runs are needed."""
        wanted = FLAKY_PASSES if self.issue.reported.is_flaky else PASSES
        for count in range(1, wanted + 1):
            captured, problem = self._capture(python, f"{number}-{count}")
            answer = self._answer(captured, problem)
            if answer.answer != answers.PASSES:
                return IssueRun(torch, answer.answer, answer.why), captured
        return IssueRun(torch, answers.PASSES, answer.why, wanted), captured

    def _capture(self, python: str, name: str) -> tuple[dict[str, Any], str]:
        issue = self.issue
        words = ["capture", "--json", "--stall", str(STALL_S), "--timeout", str(TIMEOUT_S)]
        words += ["--budget", str(BUDGET_S), "--output-dir", str(self.folder / name)]
        words += ["--graph-breaks", "0"] if issue.reported.kind == "graph-break" else []
        words += ["--compare", "--", python, PROGRAM_FILE, *issue.command.arguments]
        try:
            captured = dict(json.loads(self._run_reprokit(words, python)))
            for name in ("pack", "run_dir"):
                self._check_inside(captured.get(name))
            return captured, ""
        except (CommandFailed, ValueError) as problem:
            host_log.log_ignored(problem)
            return {}, str(problem)

    def _check_inside(self, path: object) -> None:
        """Raise ValueError for a path outside of the folder: a program may change what reprokit
        writes in the jail.
        """
        if path and not Path(str(path)).resolve().is_relative_to(self.folder.resolve()):
            raise ValueError("the result names a file outside of the jail")

    def _run_reprokit(self, words: Sequence[str], python: str) -> str:
        """Return what reprokit prints in the jail; raises CommandFailed."""
        command = self.jail.command(
            [sys.executable, "-c", START, "--isolated", *words],
            self.folder,
            [python],
            self.issue.command.variables,
        )
        return run_for_output(command, LIMIT_S, statuses=(0, 1, 3))

    def _answer(self, captured: dict[str, Any], problem: str) -> ReportAnswer:
        if not captured:
            return ReportAnswer(answers.CANNOT_TELL, problem)
        verdict, title = captured["verdict"], str(captured["signature"]["title"])
        comparison = captured.get("comparison") or {}
        run = CapturedRun(
            kind=str(verdict["kind"]),
            what=identity_of_title(title).what,
            title=title,
            responsible=str(verdict["responsible"]),
            is_compared=bool(comparison.get("leaves")),
            recompiles=_recompiles(Path(str(captured["run_dir"]))),
            lacks_gpu=self.issue.names_gpu and not has_gpu(),
            reason=str(verdict["reason"]),
        )
        return answers.answer_of_run(
            self.issue.reported, run, f"{platform.system()} on {platform.machine()}"
        )

    def _replay(self, failure: dict[str, Any], python: str, torch: str) -> IssueRun:
        words = ["replay", str(failure["pack"]), "--python", python, "--stall", str(STALL_S)]
        try:
            done = json.loads(self._run_reprokit([*words, "--yes", "--json"], python))
            answer = OF_REPLAY[str(done["answer"])]
            titles = [str(one["title"]) for one in done["details"]]
            why = str(done["unmet"]) or (titles[0] if titles else "")
            return IssueRun(torch, answer, "" if answer == answers.PASSES else why)
        except (CommandFailed, ValueError, KeyError) as problem:
            host_log.log_ignored(problem)
            return IssueRun(torch, answers.CANNOT_TELL, str(problem))


def _recompiles(run_path: Path) -> int:
    """Return how many times a captured run compiled code again; 0 if its record is damaged."""
    with host_log.suppress(ValueError, TypeError, AttributeError, KeyError):
        text = files.read_text(run_path / run_names.OBSERVATION_FILE)
        rows = bounded_json.parse_json(text)["recompiled"]
        return sum(int(row["count"]) for row in rows)
    return 0


def has_gpu() -> bool:
    """Return whether the machine has a device of NVIDIA."""
    return any(os.path.exists(device) for device in GPU_DEVICES)
