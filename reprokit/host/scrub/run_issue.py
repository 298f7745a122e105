"""Run the program of an issue with one torch after the other, all in the jail.

The first interpreter captures the program: verdict, smallest program, proof. Each further
interpreter runs the smallest program, or the program of the issue if there is no smaller one. The
answers say in which versions of torch the failure occurs, even if the first interpreter passes.
"""

from __future__ import annotations

import itertools
import platform
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.core.records import bounded_json
from reprokit.core.records.finding import identity_of_title
from reprokit.core.reported import answers, issue_programs
from reprokit.core.reported.answers import CapturedRun
from reprokit.core.reported.issue_programs import FoundProgram
from reprokit.core.reported.reported_failure import NOTEBOOK, ReportedCommand, ReportedFailure
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.core.triage.known_failures import KnownFailure, ProvedRun
from reprokit.host.bisect import torch_environments
from reprokit.host.experiments import eager_vs_compiled
from reprokit.host.pack import reopen
from reprokit.host.pack.reopen import OpenedPack
from reprokit.host.scrub.jail import Jail, has_gpu
from reprokit.host.system import files, host_log
from reprokit.host.system.child_commands import CommandFailed, own_command, run_for_output

PROGRAM_FILE, CELL_FILE, GPU_FILE = "program.py", "cell.py", "gpu.json"
CELL = f"""\
# Run {PROGRAM_FILE} as a notebook runs a cell: __main__ has no file, linecache has the source.
import linecache

with open("{PROGRAM_FILE}") as file:
    source = file.read()
linecache.cache["<ipython-input-1>"] = len(source), None, source.splitlines(True), ""
del __file__
exec(compile(source, "<ipython-input-1>", "exec"))
"""
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
MAX_OUTPUT_BYTES = 16 << 20
MAX_CHARS = 2_000
"""Limits of what a capture in the jail prints, and of one text of it."""
MAX_ERRORS = 20
_ERROR = re.compile(r"\b[A-Z]\w+(?:Error|Exception)\b|\bUnsupported\b")
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
    files: tuple[tuple[str, Path], ...] = ()
    """Files that the program reads: the name of each in its folder, and where it is."""
    gpu: Mapping[str, Any] | None = None
    """The simulated GPU for which it is compiled; the program then has a factory ``make``."""

    @property
    def names_gpu(self) -> bool:
        """Whether the program names a CUDA device."""
        return bool(_CUDA.search(self.program.text))

    @property
    def is_cell(self) -> bool:
        """Whether the program runs as a notebook runs it."""
        return self.reported.machine == NOTEBOOK


@dataclass(frozen=True)
class IssueRun:
    """The answer of one torch."""

    torch: str
    answer: str
    why: str
    runs: int = 1
    """How many runs gave this answer."""


@dataclass(frozen=True)
class JailedCapture:
    """What a capture in the jail says. The program may have changed all of it."""

    run: CapturedRun
    opened: OpenedPack | None = None
    """Its pack; None if it left none."""
    unproven: str = ""
    """Why there is no proved program; empty if there is one, or if nothing failed."""
    proof: str = ""
    """In how many fresh runs the proved program fails: ``2 of 2``."""
    is_reduced: bool = False
    """The proved program is a reduced one, not that of the issue."""


@dataclass(frozen=True)
class ScrubResult:
    """All that is known about an issue."""

    runs: tuple[IssueRun, ...]
    """The first one is that of the first interpreter."""
    failure: JailedCapture | None = None
    """The capture of the first torch that fails."""

    @property
    def answer(self) -> str:
        """The answer of the first torch."""
        return self.runs[0].answer

    def dated(self, kind: str) -> KnownFailure:
        """Return the runs in the form of a catalogue, which names the first bad version."""
        runs = tuple(ProvedRun(run.torch.partition("+")[0], run.answer) for run in self.runs)
        return KnownFailure("", "", kind, "", runs=runs)


def run_programs(
    programs: Sequence[IssueProgram],
    jail: Jail,
    folder: Path,
    pythons: Sequence[str],
    say: Say,
    budget_s: float = BUDGET_S,
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
        if issue.is_cell:
            files.write_atomically(own / CELL_FILE, CELL)
        if issue.gpu is not None:
            files.write_json(own / GPU_FILE, issue.gpu)
        for name, path in issue.files:
            shutil.copyfile(path, own / name)
        results.append((issue, _IssueRunner(issue, jail, own, say, budget_s).run_all(pythons)))
        if results[-1][1].answer == answers.FAILS:
            break
    issue, result = min(results, key=lambda one: _WORST.index(one[1].answer))
    left = len(programs) - MAX_PROGRAMS
    if left > 0 and result.answer == answers.PASSES:
        why = f"the first {MAX_PROGRAMS} programs pass, and {left} did not run"
        first = IssueRun(result.runs[0].torch, answers.CANNOT_TELL, why)
        result = ScrubResult((first, *result.runs[1:]), result.failure)
    return issue, result


@dataclass(frozen=True)
class _IssueRunner:
    """Runs one program."""

    issue: IssueProgram
    jail: Jail
    folder: Path
    say: Say
    budget_s: float

    def run_all(self, pythons: Sequence[str]) -> ScrubResult:
        """Return the answers of all interpreters."""
        results: list[IssueRun] = []
        failure: JailedCapture | None = None
        for number, python in enumerate(pythons):
            torch = torch_environments.imported_torch_version(python)
            lines = " and ".join(map(str, self.issue.program.lines))
            which = f"the program from line {lines}" if lines else self.issue.title
            self.say(f"running {which} with torch {torch}")
            if failure and failure.opened and failure.opened.repro:
                results.append(self._replay(failure.opened, python, torch))
            else:
                run, captured = self._capture_until_sure(python, torch, number)
                results.append(run)
                if run.answer == answers.FAILS:
                    failure = captured
            self.say(f"torch {torch}: {results[-1].answer} ({results[-1].why})")
        return ScrubResult(tuple(results), failure)

    def _capture_until_sure(
        self, python: str, torch: str, number: int
    ) -> tuple[IssueRun, JailedCapture]:
        """Capture the program, and again while it passes and more runs are needed."""
        reported = self.issue.reported
        wanted = FLAKY_PASSES if reported.is_flaky else PASSES
        run_files = [PROGRAM_FILE] * wanted
        if self.issue.is_cell:  # first as a script, because a script that fails can be reduced
            run_files = [PROGRAM_FILE] + [CELL_FILE] * wanted
        here = f"{platform.system()} on {platform.machine()}"
        for count, file in enumerate(run_files, 1):
            captured = self._capture(python, file, f"{number}-{count}")
            answer = answers.answer_of_run(
                reported, captured.run, here, NOTEBOOK if self.issue.is_cell else ""
            )
            if answer.answer != answers.PASSES:
                return IssueRun(torch, answer.answer, answer.why), captured
        return IssueRun(torch, answers.PASSES, answer.why, len(run_files)), captured

    def _capture(self, python: str, file: str, name: str) -> JailedCapture:
        words = ["capture", "--json", "--stall", str(STALL_S), "--timeout", str(TIMEOUT_S)]
        words += ["--budget", str(self.budget_s), "--output-dir", str(self.folder / name)]
        words += ["--fail-on", "graph-break"] if self.issue.reported.kind == "graph-break" else []
        if self.issue.gpu is not None:
            words += ["--python", python, "--gpu", GPU_FILE, f"{file}:make"]
        else:
            words += ["--compare", "--", python, file, *self.issue.command.arguments]
        try:
            return self._read_capture(self._run_reprokit(words, python))
        except CommandFailed as problem:
            return JailedCapture(_no_answer(str(problem)))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as problem:
            host_log.log_ignored(problem)
            return JailedCapture(_no_answer("the capture printed no valid answer"))
        except BadInput as problem:
            return JailedCapture(_no_answer(f"the capture left no valid pack: {problem}"))

    def _read_capture(self, output: str) -> JailedCapture:
        """Return what a capture printed; raises one of many errors if it is damaged."""
        captured = bounded_json.parse_json(output)
        if "error" in captured and "verdict" not in captured:
            return JailedCapture(_no_answer(str(captured["error"])[:MAX_CHARS]))
        verdict = captured["verdict"]
        title = str(captured["signature"]["title"])[:MAX_CHARS]
        run = CapturedRun(
            kind=str(verdict["kind"])[:MAX_CHARS],
            what=identity_of_title(title).what,
            title=title,
            responsible=str(verdict["responsible"])[:MAX_CHARS],
            is_compared=bool((captured["comparison"] or {}).get("leaves")),
            asserts=issue_programs.asserts_something(self.issue.program.text),
            recompiles=self._recompiles(str(captured["run_dir"])),
            lacks_gpu=self.issue.names_gpu and self.issue.gpu is None and not has_gpu(),
            is_simulated=self.issue.gpu is not None,
            reason=str(verdict["reason"])[:MAX_CHARS],
            errors=self._printed_errors(str(captured["run_dir"])) or (),
            errors_in_eager=self._printed_errors(
                str(eager_vs_compiled.eager_folder(Path(captured["run_dir"])))
            ),
        )
        pack = captured["pack"]
        opened = reopen.open_pack(self._inside(str(pack))) if pack else None
        return JailedCapture(
            run,
            opened,
            str(captured["unproven"] or "")[:MAX_CHARS],
            opened.proof if opened is not None else "",
            opened is not None and opened.is_reduced,
        )

    def _printed_errors(self, run_dir: str) -> tuple[str, ...] | None:
        """Return the lines of a run's output that name an error; None if it did not run."""
        logs = self._inside(run_dir) / run_names.LOGS_FOLDER
        if not logs.is_dir():
            return None
        names = (run_names.STDOUT_FILE, run_names.STDERR_FILE)
        text = "".join(files.read_text(logs / name, MAX_OUTPUT_BYTES) for name in names)
        rows = (row.strip()[:MAX_CHARS] for row in text.splitlines() if _ERROR.search(row))
        return tuple(itertools.islice(rows, MAX_ERRORS))

    def _recompiles(self, run_dir: str) -> int:
        """Return how many times a captured run compiled code again."""
        path = self._inside(run_dir) / run_names.OBSERVATION_FILE
        with files.open_regular_file(path) as file:
            text = files.read_at_most(file, bounded_json.MAX_CHARS)
        return sum(int(row["count"]) for row in bounded_json.parse_json(text)["recompiled"])

    def _inside(self, path: str) -> Path:
        """Return the path of a file in the folder of the jail; raises ValueError for any other."""
        resolved = Path(path).resolve()
        if not resolved.is_relative_to(self.folder.resolve()):
            raise ValueError("the result names a file outside of the jail")
        return resolved

    def _run_reprokit(self, words: Sequence[str], python: str) -> str:
        """Return what reprokit prints in the jail, up to a limit; raises CommandFailed."""
        command = self.jail.command(
            own_command("reprokit", "--isolated", *words),
            self.folder,
            [python],
            self.issue.command.variables,
        )
        cut = f'"$@" 2>/dev/null | head -c {MAX_OUTPUT_BYTES}'
        return run_for_output(["sh", "-c", cut, "sh", *command], LIMIT_S)

    def _replay(self, opened: OpenedPack, python: str, torch: str) -> IssueRun:
        words = ["replay", str(opened.pack.path), "--python", python, "--stall", str(STALL_S)]
        try:
            output = self._run_reprokit([*words, "--yes", "--json"], python)
            done = bounded_json.parse_json(output)
            answer = OF_REPLAY[str(done["answer"])]
            titles = [str(one["title"])[:MAX_CHARS] for one in done["details"]]
            why = str(done["unmet"])[:MAX_CHARS] or (titles[0] if titles else "")
            return IssueRun(torch, answer, "" if answer == answers.PASSES else why)
        except CommandFailed as problem:
            return IssueRun(torch, answers.CANNOT_TELL, str(problem))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            host_log.log_ignored(problem)
            return IssueRun(torch, answers.CANNOT_TELL, "the replay printed no valid answer")


def _no_answer(why: str) -> CapturedRun:
    """Return a run without an answer."""
    return CapturedRun("unknown", "", "", "", is_compared=False, reason=why)
