"""Several ranks of one program: the position of each, and the rank that differs from the others."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from reprokit.core.judge.hangs import hang_causes, wait_kinds, wait_words
from reprokit.core.judge.hangs.hang_causes import Cause
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import location, phases
from reprokit.core.judge.stacks.recent_dumps import stack_place, stacks_of
from reprokit.core.ranks.rank_records import MAX_GRAPHS, RankState
from reprokit.core.records.dumps import Frame
from reprokit.core.records.observation import Observation

MAX_FRAMES = 40
BACKWARD = "backward"
"""An operation that may contain collectives, whose frames are native."""


@dataclass(frozen=True)
class RankView:
    """The position of one rank."""

    rank: str
    pid: int
    phase: str | None
    cause: Cause
    raw: tuple[Frame, ...] = ()
    waits_for: str = ""
    """What it waits for outside of a collective, in words."""
    has_ended: bool = False
    has_pid: bool = True
    """Whether ``pid`` is that of the process; the dumps of torch have none."""

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Its stack, normalised."""
        return fr.normalise_frames(self.raw)

    @property
    def operation(self) -> str:
        """The collective in which it waits; empty if it does not wait in one."""
        inside = [
            f
            for f in self.frames
            if f.file.startswith("torch/distributed/") or f.function == "wait_tensor"
        ]
        if self.cause.name != "collective":
            return BACKWARD if self.is_in_backward else ""
        return inside[0].function.rsplit(".", 1)[-1] if inside else "a collective"

    @property
    def is_in_backward(self) -> bool:
        """Whether it waits in the native code of backward, where DDP and FSDP call collectives."""
        inner = self.frames[0] if self.frames else None
        is_backward = inner is not None and inner.function.endswith("_engine_run_backward")
        return is_backward and self.cause.name in ("native-wait", "lock-deadlock", "thread-wait")

    @property
    def caller(self) -> Frame | None:
        """The line of the program, or of generated code, that called the collective."""
        return next(
            (f for f in self.raw if fr.normalise_file(f.file) in (fr.USER, "<generated>")), None
        )

    @property
    def is_called_by_program(self) -> bool:
        """Whether the program itself called the collective, and neither DDP nor compiled code."""
        within = itertools.takewhile(lambda f: f.file.startswith("torch/"), self.frames)
        plain = all(
            f.file.startswith(("torch/distributed/distributed_c10d", "torch/distributed/c10d"))
            for f in within
        )
        inner = next((f for f in self.frames if not f.file.startswith("torch/")), None)
        return plain and inner is not None and inner.file == fr.USER

    @property
    def summary(self) -> str:
        """One line about the rank."""
        name = f"rank {self.rank}" + f" (process {self.pid})" * self.has_pid
        if self.has_ended:
            return f"{name} has ended"
        if self.operation:
            called = f", called at {stack_place([self.caller])}" if self.caller else ""
            return f"{name} waits in {self.operation}{called}"
        what = "it is" if self.cause.name == "unknown" else self.cause.name
        what = f"it waits for {self.waits_for}" if self.waits_for else what
        phase = f" (phase {self.phase})" if self.phase not in (None, "eager") else ""
        place = stack_place(self.raw) if phase else wait_kinds.place_of(self.raw)
        return f"{name} is not in a collective: {what} at {place}{phase}"


def rank_views(seen: Observation) -> list[RankView]:
    """Return the position of each rank, in the order of the ranks."""
    views = []
    for rank, pid in seen.ranks.items():
        of_rank = replace(
            seen,
            main_pid=pid,
            working_tid=seen.working_tid if pid == seen.main_pid else 0,
            ranks={},
        )
        if pid != seen.main_pid:
            of_rank = replace(of_rank, open_events=(), position="", endless_line="")
        process = seen.evidence.process_of_pid(pid)
        if process is None:
            views.append(RankView(rank, pid, None, Cause("unknown"), has_ended=True))
            continue
        stack = next(iter(stacks_of(of_rank, pid, of_rank.working_tid or pid)[-1:]), ())
        phase, cause = location.phase_at_work(of_rank)[0], hang_causes.diagnose_hang(of_rank)
        waits_for = wait_words.words_of(of_rank) if phase in (None, "eager") else ""
        has_pid = bool(process.command)
        view = RankView(rank, pid, phase, cause, stack, waits_for, has_pid=has_pid)
        views.append(view)
    return views


def rank_states(seen: Observation) -> tuple[RankState, ...]:
    """Return where each rank was, as ``reprokit merge`` reads it."""
    return tuple(
        RankState(
            int(view.rank),
            view.phase or "",
            view.operation,
            view.summary,
            tuple(fr.show_frame(f) for f in view.frames[:MAX_FRAMES]),
            view.has_ended,
            round(seen.quiet_s or 0.0, 1),
            seen.world_size,
            tuple(g for g in seen.graphs if g.rank == view.rank)[:MAX_GRAPHS],
        )
        for view in rank_views(seen)
        if view.rank.isdigit()
    )


def merged_views(views: list[RankView]) -> list[list[RankView]]:
    """Group the ranks that have the same stack, with the smallest group, which differs from the
    others, first.
    """

    def position(view: RankView) -> tuple[bool, tuple[str, ...]]:
        return view.has_ended, tuple(fr.show_frame(f) for f in view.frames)

    ordered = sorted(views, key=position)
    groups = [list(group) for _, group in itertools.groupby(ordered, key=position)]
    return sorted(groups, key=lambda g: (len(g), bool(g[0].operation), int(g[0].rank)))


def odd_rank(seen: Observation) -> RankView | None:
    """Return the rank that alone differs from the others; None if it is not known which one does.

    Of two ranks that wait in different collectives, either may be wrong.
    """
    groups = merged_views(rank_views(seen))
    if len(groups) < 2 or len(groups[0]) > 1:
        return None
    odd, *_ = groups[0]
    is_known = len(groups[1]) > 1 or (not odd.operation and bool(groups[1][0].operation))
    return odd if is_known else None


def choose_waiting_rank(seen: Observation) -> Observation:
    """Return the observation with a rank that waits for the others as its main process, unless a
    rank is stuck in the compiler, which is then the cause.
    """
    if len(seen.ranks) < 2:
        return seen
    views = rank_views(seen)
    waiting = [v for v in views if v.operation]
    inside = [v for v in views if v.phase in phases.COMPILE_PHASES]
    if not waiting or inside or any(v.pid == seen.main_pid for v in waiting):
        return seen
    return replace(seen, main_pid=waiting[0].pid, working_tid=0, open_events=(), position="")


def cause_of_collective(seen: Observation) -> Cause | None:
    """Return the cause of a main process that waits for other ranks in a collective; None if it
    does not.
    """
    views = rank_views(seen)
    main = next((v for v in views if v.pid == seen.main_pid), None)
    if main is None or not main.operation:
        return None
    rows = [v.summary for group in merged_views(views) for v in group]
    unseen = seen.world_size - len(views)
    if unseen > 0:
        rows.insert(0, f"{unseen} of {seen.world_size} ranks are not on this machine")
    waiting = sorted({v.operation for v in views if v.operation})
    if len(waiting) > 1:
        rows.insert(
            0, f"the ranks disagree: they wait in {' and in '.join(waiting)} at the same time"
        )
    return Cause("collective", "; ".join(rows[:6]), main.cause.also, tuple(rows))
