"""The ablation: compile a program in different ways, each in a forked child of the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from reprokit.core.experiments.ablation import (
    BACKENDS,
    CHANGES,
    EAGER,
    OWN_PASSES,
    TRACED,
    VARIANTS,
    AblationStep,
    AnyAblation,
    CompileVariant,
    ProgramAblation,
    faster_overrides,
    own_variants,
    read_ablation,
)
from reprokit.core.experiments.remedies.remedy_table import BREAKS_ALLOWED
from reprokit.core.judge import same_failure
from reprokit.core.judge.silent_failures import is_tolerated
from reprokit.core.records.finding import Signature
from reprokit.core.records.journal_reader import SomeEvent
from reprokit.core.records.observation import Observation
from reprokit.core.shared import cuts
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.result_events import Bisected, Departs
from reprokit.host.probe.candidate import (
    SAME_RANDOM_NUMBERS,
    UNCOMPILED_ROLES,
    CandidateResult,
    ProbeLimits,
    candidate_request,
    is_repeated,
    judge_candidate,
)
from reprokit.host.probe.client import ProbeServer, ServerLost
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader
from reprokit.host.run.run_directory import RESULTS_FOLDER
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import deletion, files, host_log
from reprokit.host.system.progress import OperationStatus

IN_CAPTURE = tuple(r for r in VARIANTS if r.group == "backends" or r.name == "dynamic=False")
GRAPH_PASSES = ("pre_grad_passes", "joint_graph_passes", "post_grad_passes")
SUBSYSTEMS = {
    "inductor": (*GRAPH_PASSES, "lowerings"),
    "fx-passes": GRAPH_PASSES,
    "decompositions": ("decomposition",),
}
"""What PyTorch's CompilerBisector can switch off, one application at a time; in compile order."""
APPLICATIONS = {
    "pre_grad_passes": "pre-grad pass",
    "joint_graph_passes": "joint-graph pass",
    "post_grad_passes": "post-grad pass",
    "lowerings": "lowering",
    "decomposition": "decomposition",
}
"""What one application of a subsystem is called."""
MAX_BISECTIONS = 12
WITHOUT_PASSES_S = 60.0
"""Seconds for a program without its own passes: if they hang, the time of a compile is unknown."""
Show = Callable[[OperationStatus], None]
"""Called with the progress of an ablation."""
ABLATING = "trying other backends and modes"
LOCATING = "locating the failure in the compiler"


class AblationRunner:
    """Runs the ablation steps of one failure of a factory target or of a program's text."""

    def __init__(
        self,
        server: ProbeServer,
        program: Request | str,
        wanted: Signature,
        limits: ProbeLimits,
        python: str,
        remedies: Sequence[CompileVariant] = (),
    ) -> None:
        """``remedies`` may avoid the failure, and a capture tries them."""
        self._server, self._program, self._wanted, self._python = server, program, wanted, python
        self.remedies = tuple(remedies)
        self.eager_end: CandidateResult | None = None
        """How the program ended without torch.compile; None before that step."""
        self._limits = dataclasses.replace(limits, stop=None)
        self._plain: CandidateResult | None = None
        """The eager run, once it has left the results to compare with."""

    @property
    def is_traced(self) -> bool:
        """True for a failure that shows while Dynamo traces the program or checks its guards."""
        return self._wanted.parts.phase in TRACED

    @property
    def is_skip(self) -> bool:
        """True for a CUDA graph that Inductor skipped, for which there is no other backend."""
        return self._wanted.parts.kind == "cudagraph-skip"

    def run_variants(
        self, variants: Sequence[CompileVariant], show: Show = lambda status: None
    ) -> ProgramAblation:
        """Run every variant; a step whose server is lost is unresolved."""
        steps = []
        status = OperationStatus(ABLATING, total=len(variants))
        # runs whose results are compared share a folder of results
        at_once = 1 if self._limits.compares else self._server.at_once
        with ThreadPoolExecutor(min(at_once, len(variants)) or 1) as pool:
            ended = [pool.submit(self._step_of, variant) for variant in variants]
            try:
                for number, (variant, step) in enumerate(zip(variants, ended, strict=True), 1):
                    status.trying, status.done = variant.name, number
                    show(status)
                    steps.append(step.result())
            finally:
                pool.shutdown(cancel_futures=True)
        return ProgramAblation(tuple(steps))

    def _step_of(self, variant: CompileVariant) -> AblationStep:
        try:
            try:
                judged = self.run_variant(variant)
            except ServerLost as lost:  # a variant that ran at the same time may have ended it
                host_log.log_ignored(lost)
                judged = self.run_variant(variant)
        except ServerLost as problem:
            return AblationStep(
                variant.name,
                variant.group,
                same_failure.UNRESOLVED,
                "unknown",
                cuts.cut_head(str(problem), 200),
                overrides=variant.overrides,
            )
        if variant is EAGER:
            self.eager_end = judged
        if variant.name == BREAKS_ALLOWED.name and is_tolerated(judged.verdict, judged.seen):
            judged = dataclasses.replace(judged, answer=same_failure.PASSES)
        return AblationStep(
            variant.name,
            variant.group,
            judged.answer,
            judged.verdict.kind,
            judged.signature.title,
            round(judged.seconds, 2),
            round(judged.cpu_s, 2),
            variant.overrides,
        )

    def run_variant(self, variant: CompileVariant) -> CandidateResult:
        """Run the program as ``variant`` compiles it, and judge the run."""
        if not self._limits.compares:
            least_s = WITHOUT_PASSES_S if variant is OWN_PASSES else 0.0
            return self._run(
                "",
                variant.overrides,
                is_eager=variant is EAGER,
                least_s=least_s,
                program=variant.program,
            )
        if self._plain is None:
            deletion.delete_path(self._server.folder / RESULTS_FOLDER, inside=self._server.folder)
            self._plain, *_ = [self._run(role, {}, is_eager=True) for role in UNCOMPILED_ROLES]
        if variant is EAGER or self._plain.verdict.kind != "ok":
            return self._plain
        for path in (self._server.folder / RESULTS_FOLDER).rglob("repeated.pt"):
            deletion.delete_path(path, inside=self._server.folder)  # of an earlier variant
        compiled = self._run("compiled", variant.overrides)
        if compiled.answer == same_failure.OTHER and is_repeated(self._wanted, compiled.seen):
            return self._run("repeated", variant.overrides)
        return compiled

    def close(self) -> None:
        """Delete the results of the runs, which are the user's data."""
        deletion.delete_path(self._server.folder / RESULTS_FOLDER, inside=self._server.folder)

    def find_application(
        self,
        subsystem: str,
        show: Show = lambda status: None,
        without: Sequence[str] = (),
        overrides: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the application of ``subsystem`` with which the failure begins; empty for none.

        A subsystem is, for example, ``lowerings`` or ``post_grad_passes``. The search uses the
        hooks of PyTorch's CompilerBisector. The subsystems in ``without`` are off, and every run
        has the ``overrides``.
        """
        show(OperationStatus(LOCATING, f"whether it is one of the {subsystem}"))
        bisect = {"subsystem": subsystem, "without": list(without)}
        options = {**(overrides or {}), "bisect": bisect}
        count, _ = self._bisected(options, None)
        if not count or self._answer_at(options, 0) != same_failure.PASSES:
            return ""
        if without and self._answer_at(options, count) != same_failure.SAME:
            return ""
        low, high = 0, count  # passes with the first ``low`` of them, fails with ``high``
        for _ in range(MAX_BISECTIONS):
            if high - low <= 1:
                break
            middle = (low + high) // 2
            show(OperationStatus(LOCATING, f"which of {high - low} {subsystem}"))
            if self._answer_at(options, middle) == same_failure.SAME:
                high = middle
            else:
                low = middle
        return self._bisected(options, high)[1] if high - low == 1 else ""

    def _answer_at(self, options: Mapping[str, Any], most: int) -> str:
        return self.run_variant(CompileVariant("", "", _applying(options, most))).answer

    def _bisected(self, options: Mapping[str, Any], most: int | None) -> tuple[int, str]:
        """Return the number of applications of the subsystem, and the name of number ``most``."""
        role = "compiled" if self._limits.compares else ""
        events = self._events_of(Bisected, role, _applying(options, most))
        name = next((e.info for e in events if e.n == most), "")
        return max((e.n for e in events), default=0), name

    @property
    def is_whole_target(self) -> bool:
        """True for the user's whole target, whose lines the user knows."""
        return not isinstance(self._program, str)

    def find_departure(self) -> Departs | None:
        """Return the first graph that differs from eager, with its operator."""
        events = self._events_of(Departs, "compiled", {"graphs": True})
        return events[0] if events else None

    def _events_of(self, kind: type[SomeEvent], role: str, overrides: Any) -> list[SomeEvent]:
        """Return the events of one kind of a compiled run."""
        events: list[SomeEvent] = []
        self._run(
            role, overrides, read=lambda journals: events.extend(journals.events_of_type(kind))
        )
        return events

    def _run(
        self,
        role: str,
        overrides: Any,
        is_eager: bool = False,
        read: Callable[[observation_reader.Journals], None] | None = None,
        least_s: float = 0.0,
        program: str = "",
    ) -> CandidateResult:
        """Run the program, or the text ``program`` instead."""
        limits = dataclasses.replace(self._limits, deadline_s=max(self._limits.deadline_s, least_s))
        if role:
            overrides = {
                **overrides,
                "configs": {**overrides.get("configs", {}), **SAME_RANDOM_NUMBERS["configs"]},
            }
        outcome: RunOutcome
        folder: Path
        if program or isinstance(self._program, str):
            outcome, folder = self._server.run_program(
                program or str(self._program), limits, is_eager, role, overrides
            )
            request = candidate_request(folder / run_names.REPRO_FILE, self._python, limits)
        else:
            outcome, folder = self._server.run_target(
                self._program, limits, is_eager, role, overrides
            )
            request = dataclasses.replace(self._program, deadline_s=limits.wall_s)
        try:
            if read:
                read(observation_reader.read_journals(folder))
            return judge_candidate(request, outcome, folder, self._wanted, self._limits)
        finally:
            deletion.delete_path(folder, inside=self._server.folder)


def _applying(options: Mapping[str, Any], most: int | None) -> dict[str, Any]:
    """Return overrides under which the first ``most`` applications of a subsystem run."""
    return {**options, "bisect": {**options["bisect"], "most": most}}


def describe_blamed(subsystem: str, name: str) -> str:
    """Return a clause that names the application to which the bisector points."""
    return f"it disappears without the {APPLICATIONS.get(subsystem, subsystem)} `{name}`"


def load_ablation(run_path: Path) -> AnyAblation | None:
    """Return the ablation in a run directory; None where there is none."""
    if fields := files.read_json_object(run_path / run_names.ABLATION_FILE):
        with host_log.suppress(ValueError):
            return read_ablation(fields)
    return None


def _all_steps(
    runner: AblationRunner, seen: Observation, variants: Sequence[CompileVariant]
) -> list[CompileVariant]:
    """Return the steps for the program's own code, then ``variants``, then the remedies.

    A CUDA graph that Inductor skipped has no other backend.
    """
    if runner.is_skip:
        return [*runner.remedies]
    steps = list(own_variants(seen))
    steps += [variant for variant in variants if variant not in steps]
    return [*steps, *(remedy for remedy in runner.remedies if remedy not in steps)]


def ablate_for_capture(runner: AblationRunner, seen: Observation, show: Show) -> ProgramAblation:
    """Run the ablation steps that belong to every capture of a failure.

    If a failure shows while the program is traced, also with the backend "eager", the backends
    above aot_eager say nothing new, and a program that recompiles takes long with them. Switches
    are then tried with the backend "eager", and again as they are if the failure is gone.
    """
    variants = _all_steps(runner, seen, IN_CAPTURE)
    if not runner.is_traced:
        return runner.run_variants(variants, show)
    costly = [v for v in variants if v in BACKENDS[3:] or v.group in ("switches", CHANGES)]
    ablation = runner.run_variants([v for v in variants if v not in costly], show)
    if ablation.first_failing == BACKENDS[1]:
        switches = [v for v in costly if v not in BACKENDS]
        traced = runner.run_variants([_with_backend(v, BACKENDS[1]) for v in switches], show).steps
        known = {step.name: step for step in traced if step.answer == same_failure.SAME}
        costly = [v for v in switches if v.name not in known]
        ablation = ProgramAblation((*ablation.steps, *known.values()))
    return ProgramAblation((*ablation.steps, *runner.run_variants(costly, show).steps))


def _with_backend(variant: CompileVariant, backend: CompileVariant) -> CompileVariant:
    compile_words = {**variant.overrides.get("compile", {}), **backend.overrides["compile"]}
    return dataclasses.replace(variant, overrides={**variant.overrides, "compile": compile_words})


def ablate_everything(runner: AblationRunner, seen: Observation, show: Show) -> ProgramAblation:
    """Run all ablation steps, and find the one pass, decomposition or lowering that is wrong."""
    ablation = runner.run_variants(_all_steps(runner, seen, VARIANTS), show)
    if ablation.own:
        return ablation
    part = ablation.first_failing.part if ablation.first_failing else ""
    overrides = faster_overrides(seen, part)
    with host_log.suppress(ServerLost):
        for subsystem in SUBSYSTEMS.get(part, ()):
            if name := runner.find_application(subsystem, show, overrides=overrides):
                return dataclasses.replace(ablation, blamed=describe_blamed(subsystem, name))
    return ablation
