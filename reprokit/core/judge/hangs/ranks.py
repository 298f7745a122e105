"""Several ranks of one program: where each stands, and which is the odd one out."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from reprokit.core.judge.hangs import hang_causes
from reprokit.core.judge.hangs.hang_causes import Cause
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import location, phases
from reprokit.core.judge.stacks.recent_dumps import stack_place, stacks_of
from reprokit.core.records.dumps import Frame
from reprokit.core.records.observation import Observation


@dataclass(frozen=True)
class RankView:
    """Where one rank stands."""

    rank: str
    pid: int
    phase: str | None
    cause: Cause
    raw: tuple[Frame, ...] = ()
    has_ended: bool = False

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Its stack, normalised."""
        return fr.normalise_frames(self.raw)

    @property
    def operation(self) -> str:
        """The collective it waits in; empty when it waits in none."""
        inside = [
            f
            for f in self.frames
            if f.file.startswith("torch/distributed/") or f.function == "wait_tensor"
        ]
        if self.cause.name != "collective":
            return ""
        return inside[0].function.rsplit(".", 1)[-1] if inside else "a collective"

    @property
    def told(self) -> str:
        """One line about it."""
        if self.has_ended:
            return f"rank {self.rank} has ended"
        if self.operation:
            caller = next(
                (f for f in self.raw if fr.normalise_file(f.file) in ("<user>", "<generated>")),
                None,
            )
            return f"rank {self.rank} waits in {self.operation}" + (
                f", called at {stack_place([caller])}" if caller else ""
            )
        return (
            f"rank {self.rank} is elsewhere: {self.cause.name} at {stack_place(self.raw)} (phase"
            f" {self.phase or 'none'})"
        )


def rank_views(seen: Observation) -> list[RankView]:
    """Where each rank stands, in the order of the ranks."""
    found = []
    for rank, pid in seen.ranks.items():
        one = replace(
            seen,
            main_pid=pid,
            working_tid=seen.working_tid if pid == seen.main_pid else 0,
            ranks={},
        )
        if pid != seen.main_pid:
            one = replace(one, open_events=(), position="", endless_line="")
        if seen.evidence.process(pid) is None:
            found.append(RankView(rank, pid, None, Cause("unknown"), has_ended=True))
            continue
        stack = next(iter(stacks_of(one, pid, one.working_tid or pid)[-1:]), ())
        found.append(
            RankView(
                rank, pid, location.phase_at_work(one)[0], hang_causes.diagnose_hang(one), stack
            )
        )
    return found


def merged_views(found: list[RankView]) -> list[list[RankView]]:
    """Ranks that stand at the same place together; the smallest group, the odd one out, first."""

    def key(view: RankView) -> tuple[bool, tuple[str, ...]]:
        return view.has_ended, tuple(fr.show_frame(f) for f in view.frames)

    groups = [list(group) for _, group in itertools.groupby(sorted(found, key=key), key=key)]
    return sorted(groups, key=lambda g: (len(g), bool(g[0].operation), int(g[0].rank)))


def odd_one_out(seen: Observation) -> Observation:
    """Tell the story of a rank that waits for the others, unless one is stuck in the compiler: it
    is the cause.
    """
    if len(seen.ranks) < 2:
        return seen
    found = rank_views(seen)
    waiting = [v for v in found if v.operation]
    inside = [v for v in found if v.phase in phases.COMPILE_PHASES]
    if not waiting or inside or any(v.pid == seen.main_pid for v in waiting):
        return seen
    return replace(seen, main_pid=waiting[0].pid, working_tid=0, open_events=(), position="")


def cause_of_collective(seen: Observation) -> Cause | None:
    """The cause where ranks wait for one another; None where no rank of this story does."""
    found = rank_views(seen)
    story = next((v for v in found if v.pid == seen.main_pid), None)
    if story is None or not story.operation:
        return None
    rows = [v.told for group in merged_views(found) for v in group]
    unseen = seen.world_size - len(found)
    if unseen > 0:
        rows.insert(0, f"{unseen} of {seen.world_size} ranks are not seen on this machine")
    waiting = sorted({v.operation for v in found if v.operation})
    if len(waiting) > 1:
        rows.insert(
            0, f"the ranks disagree: {' and '.join(waiting)} are waited in at the same time"
        )
    return Cause("collective", "; ".join(rows[:6]), story.cause.also, tuple(rows))
