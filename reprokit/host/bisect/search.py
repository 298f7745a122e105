"""Bisect the version of torch in which a failure started.

Each step runs the repro of the pack in fresh processes with one version. A version that cannot be
installed, fails differently or gives no answer is skipped, and counts for neither side. Each answer
is written at once, under a digest of all that it depends on, so that no step is done twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from reprokit.core.experiments import bisection
from reprokit.core.experiments.bisection import BAD, GOOD, SKIP
from reprokit.core.judge import same_failure
from reprokit.core.records import process_state
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect import torch_environments
from reprokit.host.bisect.torch_environments import CannotInstall, InstallOptions, TorchEnvironment
from reprokit.host.bisect.torch_versions import BisectPlan, Say, TorchVersion
from reprokit.host.minimize import rerun_repro
from reprokit.host.pack import reopen
from reprokit.host.pack.reopen import OpenedPack
from reprokit.host.request import interpreter
from reprokit.host.system import files, host_log

ANSWERS_FILE = "answers.jsonl"


@dataclass(frozen=True)
class BisectStep:
    """The answer of one version."""

    version: str
    answer: str
    title: str
    """The failure with this version, or why there is no answer; empty where it passes."""
    python: str = ""
    how: str = ""
    """The origin of the interpreter, as in ``TorchEnvironment``."""
    seconds: float = 0.0
    is_known: bool = False
    """The answer is from an earlier bisection in the same folder."""


@dataclass(frozen=True)
class BisectRequest:
    """The failure of a pack, and the options of the runs that look for it."""

    opened: OpenedPack
    options: InstallOptions
    times: int
    stall_s: float
    folder: Path


@dataclass(frozen=True)
class BisectResult:
    """The result of a bisection."""

    plan: BisectPlan
    steps: tuple[BisectStep, ...]
    answers: dict[int, str]
    is_interrupted: bool = False

    @property
    def outcome(self) -> bisection.SearchOutcome:
        """The range in which the failure started."""
        return bisection.outcome_of(self.answers, len(self.plan.candidates))

    @property
    def says(self) -> str:
        """The range in one sentence."""
        return bisection.search_sentence(
            self.plan.names, self.answers, self.plan.is_backwards, not self.is_interrupted
        )


def require_bisectable_pack(opened: OpenedPack) -> None:
    """Check that a pack has a failure that other runs can be compared with.

    Raises:
        BadInput: it has none.
    """
    reopen.require_program(opened, "bisect")
    if kind_named(opened.verdict.kind).not_filed:
        raise BadInput(
            f"{opened.pack.path} is of kind {opened.verdict.kind}, which has no failure to look for"
        )


def bisect_torch(plan: BisectPlan, request: BisectRequest, say: Say) -> BisectResult:
    """Try versions until the range is found, an end is wrong, or the user interrupts."""
    names = plan.names
    steps = [BisectStep("", SKIP, why, python, "installed") for python, why in plan.unplaced]
    kept = BisectAnswers(request)
    answers: dict[int, str] = {}

    def answer_at(index: int) -> str:
        candidate = plan.candidates[index]
        step = kept.get(candidate)
        if step is None:
            step = try_version(
                candidate, request, say, request.folder / f"{index:03d}-{candidate.version}"
            )
            kept.add(candidate, step)
        step = dataclasses.replace(step, version=names[index])
        steps.append(step)
        answers[index] = step.answer
        effort = "known already" if step.is_known else f"{step.seconds:.1f} s"
        say(
            f"torch {step.version}: {step.answer}{f' ({step.title})' if step.title else ''},"
            f" {effort}"
        )
        return step.answer

    try:
        bisection.search_change(len(plan.candidates), answer_at)
    except KeyboardInterrupt:
        return BisectResult(plan, tuple(steps), answers, is_interrupted=True)
    return BisectResult(plan, tuple(steps), answers)


def try_version(
    candidate: TorchVersion, request: BisectRequest, say: Say, folder: Path
) -> BisectStep:
    """Run the repro with one version.

    Raises:
        KeyboardInterrupt: the user interrupted it.
    """
    began = time.monotonic()
    try:
        environment = _environment_of(candidate, request.options, say)
    except CannotInstall as problem:
        return BisectStep(
            candidate.version,
            SKIP,
            str(problem),
            candidate.python,
            seconds=time.monotonic() - began,
        )
    opened = request.opened
    version = f"torch {environment.torch}" if environment.torch else environment.python
    say(f"running the repro with {version}")
    with contextlib.ExitStack() as stack:
        if not candidate.python:
            stack.enter_context(torch_environments.without_user_environment())
        done = rerun_repro.replay_repro(
            opened.program,
            environment.python,
            opened.signature,
            request.times,
            folder,
            request.stall_s,
            until=same_failure.SAME,
            growth=opened.growth,
            gpu=opened.gpu,
            confirms=False,  # the names of passes differ between versions of torch
        )
        if done.is_interrupted:
            raise KeyboardInterrupt
        title = _title(done, environment.python)
    answer = {same_failure.SAME: BAD, same_failure.PASSES: GOOD}.get(done.answer, SKIP)
    return BisectStep(
        environment.torch,
        answer,
        title,
        environment.python,
        environment.how,
        time.monotonic() - began,
    )


def _title(done: rerun_repro.ReplayResult, python: str) -> str:
    """Return the title of the failure that decided the answer, or why there is no answer."""
    deciding = next(run for run in done.runs if run.answer == done.answer)
    if done.answer == same_failure.PASSES:
        return ""
    if done.unmet:
        return f"{process_state.UNMET_WORDS}{done.unmet}"
    if done.answer == same_failure.UNRESOLVED:
        try:
            torch_environments.imported_torch_version(python)
        except CannotInstall as problem:
            return str(problem)
    verdict = deciding.verdict
    return (
        f"{verdict.kind}: {verdict.reason}"
        if kind_named(verdict.kind).not_filed
        else deciding.signature.title
    )


def _environment_of(candidate: TorchVersion, options: InstallOptions, say: Say) -> TorchEnvironment:
    if candidate.python:
        return TorchEnvironment(candidate.version, candidate.python, "installed", 0.0)
    return torch_environments.obtain_environment(candidate.version, options, say)


class BisectAnswers:
    """The file of answers in a folder; each answer has a digest of all that it depends on."""

    def __init__(self, request: BisectRequest) -> None:
        self._request = request
        self._path = request.folder.parent / ANSWERS_FILE
        self._base = interpreter.check_interpreter(request.options.python)
        self._steps: dict[str, BisectStep] = {}
        for line in files.read_text(self._path).splitlines():
            # a killed process leaves half a line
            with host_log.suppress(ValueError, KeyError, TypeError, AttributeError):
                row = json.loads(line)
                fields = {
                    f.name: row[f.name]
                    for f in dataclasses.fields(BisectStep)
                    if f.name != "is_known"
                }
                if fields["answer"] in bisection.ANSWERS:
                    self._steps[row["question"]] = BisectStep(**fields, is_known=True)

    def get(self, candidate: TorchVersion) -> BisectStep | None:
        """Return the known answer of a version; None where there is none."""
        return self._steps.get(self._digest(candidate))

    def add(self, candidate: TorchVersion, step: BisectStep) -> None:
        """Append an answer to the file."""
        files.append_json(
            self._path, {"question": self._digest(candidate), **dataclasses.asdict(step)}
        )

    def _digest(self, candidate: TorchVersion) -> str:
        request = self._request
        where = (
            candidate.python
            or torch_environments.environment_folder(
                Version(candidate.version), self._base, request.options
            ).name
        )
        signature = request.opened.signature
        parts = [
            signature.algorithm,
            signature.id,
            request.opened.program,
            candidate.version,
            where,
            request.times,
            request.stall_s,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
