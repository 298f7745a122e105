"""In which torch did a failure start? One question a version, each answered by the pack's own repro
in fresh processes.

A version that cannot be installed, fails otherwise or gives no answer is stepped around, never
taken for either side. Answers are written down as they come, each under all that it depends on, so
that none is asked for twice.
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
from reprokit.core.records.kinds import kind_named
from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect import torch_environments
from reprokit.host.bisect.torch_environments import CannotInstall, InstallOptions, TorchEnvironment
from reprokit.host.bisect.torch_versions import BisectPlan, Say, TorchVersion
from reprokit.host.minimize import rerun_repro
from reprokit.host.pack import reopen
from reprokit.host.pack.reopen import OpenedPack
from reprokit.host.request import interpreter
from reprokit.host.system import files

ANSWERS = "answers.jsonl"
"""Kinds of packs that no run can be compared with."""


@dataclass(frozen=True)
class BisectStep:
    """One question and its answer."""

    version: str
    answer: str
    title: str
    """The failure that showed, or why there is no answer; empty where it passes."""
    python: str = ""
    how: str = ""
    """Where the interpreter comes from, as in ``Installed``."""
    seconds: float = 0.0
    is_known: bool = False
    """It was asked by an earlier bisection in the same folder."""


@dataclass(frozen=True)
class BisectRequest:
    """The question: a pack's failure, and how it is looked for."""

    opened: OpenedPack
    options: InstallOptions
    times: int
    stall_s: float
    folder: Path


@dataclass(frozen=True)
class BisectResult:
    """What the bisection came to."""

    plan: BisectPlan
    steps: tuple[BisectStep, ...]
    answers: dict[int, str]
    is_interrupted: bool = False

    @property
    def outcome(self) -> bisection.SearchOutcome:
        """The range."""
        return bisection.outcome_of(self.answers, len(self.plan.candidates))

    @property
    def says(self) -> str:
        """The range in one sentence."""
        return bisection.search_sentence(
            self.plan.names, self.answers, self.plan.is_backwards, not self.is_interrupted
        )


def check_pack(opened: OpenedPack) -> None:
    """Refuse a pack whose failure no run can be compared with; raises BadInput."""
    reopen.require_program(opened, "bisect")
    if kind_named(opened.verdict.kind).not_filed:
        raise BadInput(
            f"{opened.pack.path} is of kind {opened.verdict.kind}, which has no failure to look for"
        )


def bisect_torch(planned: BisectPlan, asking: BisectRequest, say: Say) -> BisectResult:
    """Ask until the range is found, an end is not as told, or somebody interrupts."""
    names = planned.names
    steps = [BisectStep("", SKIP, why, python, "installed") for python, why in planned.unplaced]
    kept = BisectAnswers(asking)
    answers: dict[int, str] = {}

    def ask_at(place: int) -> str:
        candidate = planned.candidates[place]
        step = kept.get(candidate)
        if step is None:
            step = ask_version(
                candidate, asking, say, asking.folder / f"{place:03d}-{candidate.version}"
            )
            kept.add(candidate, step)
        step = dataclasses.replace(step, version=names[place])
        steps.append(step)
        answers[place] = step.answer
        ready = "known already" if step.is_known else f"{step.seconds:.1f} s"
        say(
            f"torch {step.version}: {step.answer}{f' ({step.title})' if step.title else ''},"
            f" {ready}"
        )
        return step.answer

    try:
        bisection.search_change(len(planned.candidates), ask_at)
    except KeyboardInterrupt:
        return BisectResult(planned, tuple(steps), answers, is_interrupted=True)
    return BisectResult(planned, tuple(steps), answers)


def ask_version(
    candidate: TorchVersion, asking: BisectRequest, say: Say, folder: Path
) -> BisectStep:
    """Put the question to one version; raises KeyboardInterrupt when interrupted."""
    began = time.monotonic()
    try:
        found = _installed(candidate, asking.options, say)
    except CannotInstall as problem:
        return BisectStep(
            candidate.version,
            SKIP,
            str(problem),
            candidate.python,
            seconds=time.monotonic() - began,
        )
    opened = asking.opened
    say(f"running the repro with {f'torch {found.torch}' if found.torch else found.python}")
    with contextlib.ExitStack() as stack:
        if not candidate.python:
            stack.enter_context(torch_environments.without_user_environment())
        done = rerun_repro.replay_repro(
            opened.program,
            found.python,
            opened.signature,
            asking.times,
            folder,
            asking.stall_s,
            until=same_failure.SAME,
            growth=opened.growth,
            gpu=opened.gpu,
            confirms=False,  # torch's names of passes change with it
        )
        if done.is_interrupted:
            raise KeyboardInterrupt
        title = _title(done, found.python)
    answer = {same_failure.SAME: BAD, same_failure.PASSES: GOOD}.get(done.answer, SKIP)
    return BisectStep(found.torch, answer, title, found.python, found.how, time.monotonic() - began)


def _title(done: rerun_repro.ReplayResult, python: str) -> str:
    """The failure that decided, or why there is no answer."""
    telling = next(run for run in done.runs if run.answer == done.answer)
    if done.answer == same_failure.PASSES:
        return ""
    if done.answer == same_failure.UNRESOLVED:
        try:
            torch_environments.torch_of(python)
        except CannotInstall as problem:
            return str(problem)
    verdict = telling.verdict
    return (
        f"{verdict.kind}: {verdict.reason}"
        if kind_named(verdict.kind).not_filed
        else telling.signature.title
    )


def _installed(candidate: TorchVersion, options: InstallOptions, say: Say) -> TorchEnvironment:
    if candidate.python:
        return TorchEnvironment(candidate.version, candidate.python, "installed", 0.0)
    return torch_environments.environment_of_version(candidate.version, options, say)


class BisectAnswers:
    """The answers of a folder, each under the question that it belongs to; appended to as they
    come.
    """

    def __init__(self, asking: BisectRequest) -> None:
        self._asking = asking
        self._path = asking.folder.parent / ANSWERS
        self._base = interpreter.check_interpreter(asking.options.python)
        self._steps: dict[str, BisectStep] = {}
        for line in files.read_text(self._path).splitlines():
            with contextlib.suppress(
                ValueError, KeyError, TypeError, AttributeError
            ):  # a kill leaves half a line
                row = json.loads(line)
                told = {
                    f.name: row[f.name]
                    for f in dataclasses.fields(BisectStep)
                    if f.name != "is_known"
                }
                if told["answer"] in bisection.ANSWERS:
                    self._steps[row["question"]] = BisectStep(**told, is_known=True)

    def get(self, candidate: TorchVersion) -> BisectStep | None:
        """What it answered earlier."""
        return self._steps.get(self._question(candidate))

    def add(self, candidate: TorchVersion, step: BisectStep) -> None:
        """Write an answer down."""
        files.append_json(
            self._path, {"question": self._question(candidate), **dataclasses.asdict(step)}
        )

    def _question(self, candidate: TorchVersion) -> str:
        asking = self._asking
        where = (
            candidate.python
            or torch_environments.folder_of(
                Version(candidate.version), self._base, asking.options
            ).name
        )
        signature = asking.opened.signature
        told = [
            signature.algorithm,
            signature.id,
            asking.opened.program,
            candidate.version,
            where,
            asking.times,
            asking.stall_s,
        ]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]
