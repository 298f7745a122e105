"""A failing run that can be minimized: its evidence, its starting points and its limits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from reprokit.core.experiments import condition_lines
from reprokit.core.experiments.ablation import EAGER, NOTHING_TRIED, ProgramAblation
from reprokit.core.judge import same_failure
from reprokit.core.records import memory_use, speed
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import NONDETERMINISTIC, kind_named
from reprokit.core.reduce import readable, two_processes
from reprokit.core.reduce.project import entry_text
from reprokit.core.shared.contract.events import Process, TargetBuilt, Weights
from reprokit.core.shared.contract.measured_kinds import KINDS, PEAK_MEMORY
from reprokit.core.shared.contract.probe_messages import Isolation
from reprokit.host.experiments.run_cache_stages import DEFAULT_CHANGE
from reprokit.host.minimize import reducer
from reprokit.host.minimize.candidate_text import count_code_lines
from reprokit.host.minimize.starts import program_source, starting_points
from reprokit.host.probe.candidate import ProbeLimits, probe_limits_for
from reprokit.host.probe.client import MAX_MEMORY_SHARE, ProbeServer
from reprokit.host.request.run_request import Request
from reprokit.host.run.observation_reader import Journals
from reprokit.host.system import host_log
from reprokit.host.system.process_tree import usable_cores

SERVER = "server"
_ON_GPU = re.compile(r"['\"](cuda|xpu)\b|\.cuda\(")

ENDLESS_LINE_REPEATS = 2_000
"""How many times a probe must trace one line before that counts as an endless loop. It is lower
than the limit for a whole run, because a reduction makes many probes.
"""
DEPTHS = {
    "dynamo-trace": "aot",
    "guards": "aot",
    "export": "aot",
    "backend": "aot",
    "aot": "aot",
    "partition": "aot",
    "fx-passes": "inductor",
    "lowering": "inductor",
}
"""How far the probe server must warm up for a phase; all other phases need the C++ compiler too."""
STOPPABLE = frozenset(
    {*DEPTHS, "scheduler", "codegen", "cpp-build", "triton-compile", "worker-wait"}
) - {"guards"}
"""Phases after which a compile may stop; agent/experiments/stop_after_phase.py finds their end."""


@dataclass(frozen=True)
class MinimizeCase:
    """A failing run that can be minimized."""

    verdict: Verdict
    signature: Signature
    seen: Observation
    run_path: Path
    python: str
    source: str = ""
    """The target's own program; empty where it is not self-contained."""
    is_training: bool = False
    is_fake: bool = False
    """The run used fake tensors, because real ones would not fit in memory."""
    line_repeats: int = Request.line_repeats
    gpu: Mapping[str, Any] | None = None
    """The simulated GPU that the run compiled for."""
    proofs: int = Request.proofs
    cores: int = Request.cores
    plan: two_processes.CachePlan | None = None
    """What the writer and the reader of a cache do; None for a failure that needs no cache."""
    why_no_source: str = ""
    """Why the target's own program is not reduced."""
    isolation: Isolation | None = None
    """How programs of the case run; None where all of them are written by reprokit."""
    profile: ProgramAblation = NOTHING_TRIED
    """The backends with which the original fails; empty if it was not compiled in other ways."""

    @property
    def passes_in_eager(self) -> bool:
        """Whether the original passes without torch.compile on this machine, as far as is known."""
        is_known = self.profile.answer_of(EAGER.name) == same_failure.PASSES
        return self.gpu is None and (is_known or self.seen.eager == "passes")

    @property
    def processes_at_once(self) -> int:
        """The number of programs that may run at the same time, each with what it needs."""
        return self.programs_at_once(starting_points_of_case(self))

    def programs_at_once(self, starts: Sequence[starting_points.StartingPoint]) -> int:
        """Return ``processes_at_once`` for starting points that are known.

        Programs that share a GPU or too little memory would fail where one of them alone does not.
        """
        is_on_gpu = self.gpu is None and any(_ON_GPU.search(start.text) for start in starts)
        if self.verdict.kind == "oom" or is_on_gpu:
            return 1
        fits = (
            psutil.virtual_memory().available * MAX_MEMORY_SHARE / max(self.seen.peak_rss_bytes, 1)
        )
        return max(1, min(self.cores or usable_cores(), int(fits)))


def case_of_run(
    request: Request,
    verdict: Verdict,
    signature: Signature,
    seen: Observation,
    journals: Journals,
    run_path: Path,
) -> MinimizeCase:
    """Return the case of a run on this machine."""
    python = request.python
    if request.target.kind == "command":
        executable = journals.last_event_of_type(Process).executable
        python = executable if executable and Path(executable).exists() else python
    is_peak = verdict.kind == PEAK_MEMORY  # a repro measures real tensors
    own = program_source.own_source(request, journals, is_real=is_peak)
    if is_peak and request.gpu is not None:
        own = program_source.OwnSource(why_not="the tensors of a simulated GPU have no memory")
    if seen.call_growth is not None and any(g.is_in_eager for g in seen.call_growth.growing[:1]):
        own = program_source.OwnSource(why_not="what grows also grows without torch.compile")
    is_training = request.train or journals.last_event_of_type(TargetBuilt).train
    is_fake = journals.last_event_of_type(Weights).kind == "fake" and not is_peak
    return MinimizeCase(
        verdict,
        signature,
        seen,
        run_path,
        python,
        own.text,
        is_training,
        is_fake,
        request.line_repeats,
        request.gpu,
        request.proofs,
        request.cores,
        two_processes.plan_of_observation(
            seen, request.cache_change or DEFAULT_CHANGE, request.cache_python
        ),
        own.why_not,
        own.isolation,
    )


def why_not_minimizable(verdict: Verdict) -> str:
    """Return why a run with this verdict cannot be minimized; empty when it can."""
    is_own = verdict.phase is None and verdict.responsible == "unknown"
    if verdict.kind == "exception" and is_own:
        return "the program's own code raised it, and no compared result shows why"
    if (
        verdict.kind == "hang"
        and verdict.phase in (None, "eager")
        and verdict.responsible == "user"
    ):
        return "the program waits in its own code, outside the compiler"
    if kind_named(verdict.kind).is_minimizable:
        return ""
    if verdict.kind == "ok":
        return "nothing failed"
    if verdict.responsible == "reprokit":
        return "it is a gap in reprokit, not a failure of the target"
    if verdict.kind == "error-in-eager":
        return (
            "no failure of the compiler was found that a smaller program could show:"
            f" {verdict.reason}"
        )
    if verdict.kind == "rank-mismatch":
        return (
            "the failure needs several ranks; the program in the pack is the target's own source,"
            " for torchrun"
        )
    return (
        f"the verdict is {verdict.kind}, and no signature says what a smaller program should show"
    )


def create_probe_server(case: MinimizeCase) -> ProbeServer:
    """Return the probe server of a case; it starts with its first request."""
    depth, hash_seed = "triton", ""
    starts = starting_points_of_case(case)
    if not case.seen.kernel:
        depth = _depth(case.verdict, starts)
        seeds = (condition_lines.hash_seed_of(start.text) for start in starts)
        hash_seed = next(filter(None, seeds), "")
    gpu = None if case.seen.kernel else case.gpu
    imports = entry_text.library_imports(case.source)
    server = ProbeServer(case.run_path / SERVER, case.python, depth, gpu, hash_seed, imports)
    server.at_once = case.programs_at_once(starts)
    return server


def starting_points_of_case(case: MinimizeCase) -> list[starting_points.StartingPoint]:
    """Return the programs that a reduction begins with."""
    if case.verdict.kind == "superlinear-compile":
        return starting_points.sized_starting_points(
            case.source, str(case.seen.growth.get("knob") or "")
        )
    if case.seen.kernel:
        return starting_points.kernel_starting_points(case.run_path, case.seen.kernel)
    source = case.source
    if case.verdict.kind in KINDS:  # to print a result takes time and memory
        with host_log.suppress(SyntaxError, ValueError, RecursionError):
            source = readable.without_prints(source)
    if kind_named(case.verdict.kind).is_of_calls:  # no graph can show it alone
        return starting_points.source_starting_points(source)
    is_wrong = kind_named(case.verdict.kind).compares_results
    if case.verdict.kind == PEAK_MEMORY and case.gpu is not None:
        return []
    starts = starting_points.find_starting_points(
        case.seen, case.run_path, source, case.is_training, case.is_fake, is_wrong
    )
    # a slow compile usually repeats the same code, which a loop in the source has in few lines;
    # probes of it are slow as well
    return (
        sorted(starts, key=lambda s: count_code_lines(s.text))
        if case.verdict.kind == "slow-compile"
        else starts
    )


def _depth(verdict: Verdict, starts: list[starting_points.StartingPoint]) -> str:
    """Return how far the server warms up: Inductor is not imported for a user's own backend."""
    is_own = bool(starts) and all(
        s.graph is not None and s.graph.settings.get("backend") for s in starts
    )
    if is_own and verdict.phase == "backend":
        return "dynamo"
    is_whole = verdict.kind in ("wrong-result", NONDETERMINISTIC, "superlinear-compile")
    return "build" if is_whole else DEPTHS.get(verdict.phase or "", "build")


def probe_limits_of(case: MinimizeCase) -> ProbeLimits:
    """Return the limits of each probe of a case."""
    verdict, seen = case.verdict, case.seen
    is_hang = verdict.kind == "hang"
    # the healthy part of a fresh run, with its imports, takes longer than that of a forked run
    healthy_s = max(seen.seconds - (seen.quiet_s or 0.0), reducer.MIN_HANG_DEADLINE_S)
    return probe_limits_for(
        verdict.kind,
        min(healthy_s, reducer.MIN_DEADLINE_S) if is_hang else reducer.MIN_DEADLINE_S,
        growth=seen.growth,
        gpu=None if seen.kernel else case.gpu,
        is_kernel=bool(seen.kernel),
        stop=None if seen.kernel or seen.stage else _stop(verdict),
        is_backward=verdict.work.get("direction") == "backward"
        or any(g.is_backward and not g.is_done for g in seen.graphs),
        wants_stacks=is_hang,
        stage=seen.stage,
        isolation=case.isolation,
        min_ratio=_min_ratio(seen),
        line_repeats=(
            min(case.line_repeats, ENDLESS_LINE_REPEATS) if seen.endless_line else case.line_repeats
        ),
    )


def _min_ratio(seen: Observation) -> float:
    """Return the smallest ratio to eager with which a candidate has the failure."""
    if seen.memory is not None:
        return 1 + memory_use.MIN_SHARE_OF_EXCESS * (seen.memory.ratio - 1)
    if seen.speed is not None:
        return 1 + speed.MIN_SHARE_OF_EXCESS * (seen.speed.ratio.value - 1)
    return 1.0


def _stop(verdict: Verdict) -> str | None:
    """Return the phase after which the compile of a candidate may stop; None for no such phase."""
    if verdict.phase not in STOPPABLE or not kind_named(verdict.kind).shows_before_end:
        return None
    if verdict.kind in ("exception", "crash", "hang"):
        return verdict.phase
    # for the other kinds the signature names a whole part of the compiler, not one phase
    order = [
        p
        for p in ("fx-passes", "codegen", "cpp-build")
        if p in same_failure.compiler_part(verdict.phase)
    ]
    return order[0] if order else verdict.phase
