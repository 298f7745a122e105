"""Captures findings of a hunt with the engine and the ledger of nightly runs."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.shared.contract import run_names
from reprokit.core.shared.hunted_programs import is_script
from reprokit.host.hunt.outcomes import HuntFolder, Outcome
from reprokit.host.nightly import night_report, night_runner
from reprokit.host.nightly.jobs import job_result
from reprokit.host.nightly.jobs.job_schema import FailsSchema, JobResult
from reprokit.host.nightly.ledger import ledger_file
from reprokit.host.nightly.night_report_model import BugReport
from reprokit.host.nightly.suite.cells import JobLimits, Suite, SuiteCell, SuiteEnvironment
from reprokit.host.system import files, host_log

LEDGER_FILE, CAPTURED_FILE = "ledger.sqlite", "captured.jsonl"
MAX_OF_GROUP = 2
"""How many findings of a group are captured while none of them is confirmed."""
LIMITS = JobLimits(timeout_s=300.0, budget_s=150.0, retries=0)
ENVIRONMENT = "default"
Say = Callable[[str], None]


@dataclass(frozen=True)
class CapturedFinding:
    """What ``reprokit capture`` and ``reprokit minimize`` made of a finding."""

    number: int
    kind: str = ""
    """The kind of the verdict; empty if there is none."""
    phase: str = ""
    operator: str = ""
    """The operator or the pass that the signature names; empty if it names none."""
    title: str = ""
    signature: str = ""
    lines: int | None = None
    """Lines of the proved repro; None if there is none."""
    pack: str = ""
    issue: str = ""
    """The file with the text of the issue."""
    words: tuple[str, ...] = ()
    """The words of the group that its proved repro still has; empty without one."""
    says: str = ""
    """What became of the reduction, in words."""
    problem: str = ""
    """Why there is no verdict."""

    @property
    def is_vague(self) -> bool:
        """Whether the signature names too little to tell two wrong results apart."""
        return self.kind == "wrong-result" and not self.operator

    @property
    def is_confirmed(self) -> bool:
        """Whether the capture says that the compiler fails."""
        return self.kind not in job_result.NO_BUG


def pending_findings(hunt: HuntFolder) -> list[Outcome]:
    """Return the findings to capture next: one of each group without a confirmed one.

    Programs that have all words of a proved repro are last: they probably have the same cause.
    """
    captured = captured_findings(hunt)
    proved = [frozenset(one.words) for one in captured.values() if one.words]
    pending = []
    for members in hunt.groups().values():
        answers = [captured[one.number].is_confirmed for one in members if one.number in captured]
        left = [one for one in members if one.number not in captured]
        if left and not any(answers) and len(answers) < MAX_OF_GROUP:
            pending.append(left[0])
    return sorted(pending, key=lambda one: any(w <= set(one.group.split()) for w in proved))


def captured_findings(hunt: HuntFolder) -> dict[int, CapturedFinding]:
    """Return the captured findings by their numbers."""
    names = {field.name for field in dataclasses.fields(CapturedFinding)}
    lines = files.read_text(hunt.path / CAPTURED_FILE).splitlines()
    rows = [row for line in lines if (row := files.parse_json_object(line)).keys() == names]
    return {row["number"]: CapturedFinding(**{**row, "words": tuple(row["words"])}) for row in rows}


def capture_findings(hunt: HuntFolder, chosen: Sequence[Outcome], say: Say, show: Say) -> bool:
    """Capture, reduce and prove findings, one at a time; return whether that was interrupted.

    Raises:
        NightFailed: the ledger or the folder cannot be written.
    """
    cells = tuple(_cell(hunt, one) for one in chosen)
    environments = {ENVIRONMENT: SuiteEnvironment(ENVIRONMENT, hunt.plan.python)}
    text = json.dumps([cell.key for cell in cells])
    suite = Suite(hunt.path / "hunt.toml", "hunt", text, cells, environments, keep_nights=10**6)
    result = night_runner.run_night(suite, cells, hunt.path, None, "local", 1, say, show)
    jobs = sorted((hunt.path / "nights" / result["night"]["name"] / "jobs").iterdir())
    for one, cell, job in zip(chosen, cells, jobs, strict=True):
        found: JobResult | None = None
        with host_log.suppress(FailsSchema):
            found = job_result.read_result(job, cell.key)
        if found is not None or not result["is_interrupted"]:
            row = dataclasses.asdict(_captured_finding(one, found))
            files.append_json(hunt.path / CAPTURED_FILE, row)
    return result["is_interrupted"]


def _cell(hunt: HuntFolder, outcome: Outcome) -> SuiteCell:
    """Return the capture of a finding, which compares its results whatever the environment says."""
    settings = {"environment": ENVIRONMENT, "compare": True}
    path = str(hunt.program_of(outcome).relative_to(hunt.path))
    if is_script(files.read_text(hunt.path / path)):
        command = ("{python}", path)
        return SuiteCell(" ".join(command), command, settings, limits=LIMITS)
    return SuiteCell(f"{path}:make", settings=settings, limits=LIMITS)


def _captured_finding(outcome: Outcome, result: JobResult | None) -> CapturedFinding:
    if result is None:
        return CapturedFinding(outcome.number, problem="its capture left no result")
    if not result.attempts or not result.attempts[-1].verdict.kind:
        return CapturedFinding(outcome.number, problem=result.problem)
    attempt, repro = result.attempts[-1], result.minimized
    traits = {**attempt.traits, **(repro.traits if repro else {})}
    pack = Path(attempt.run_dir, "pack") if attempt.run_dir else None
    return CapturedFinding(
        outcome.number,
        kind=attempt.verdict.kind or "",
        phase=str(traits.get("phase") or ""),
        operator=str(traits.get("operator") or ""),
        title=attempt.signature.title,
        signature=attempt.signature.id or "",
        lines=repro.lines if repro else None,
        pack=attempt.pack or "",
        issue=str(pack / "issue.md") if pack else "",
        words=_words_left(outcome.group, pack) if pack and repro and repro.lines else (),
        says=(repro.says or repro.problem or "") if repro else "",
    )


def _words_left(group: str, pack: Path) -> tuple[str, ...]:
    """Return the words of a group that the proved repro in a pack has, the kind of the difference
    first; nothing if only that is left.
    """
    what, *words = group.split() or [""]
    left = set(re.findall(r"\w+", files.read_text(pack / run_names.REPRO_FILE))) & set(words)
    return (what, *sorted(left)) if left else ()


def bugs_by_signature(hunt: HuntFolder) -> dict[str, BugReport]:
    """Return the bug in the ledger of each signature, with what the catalogue says about it."""
    if not (hunt.path / LEDGER_FILE).exists():
        return {}
    with ledger_file.open_ledger(hunt.path / LEDGER_FILE) as store:
        groups = night_report.make_report(store, None, hunt.path)["groups"]
    bugs = [bug for group in groups.values() for bug in group]
    return {signature["id"]: bug for bug in bugs for signature in bug["signatures"]}
