"""Merge the packs, the dumps and the exits of all ranks, and say which rank the others wait for."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reprokit.core.ranks.desync import Desync, find_desync
from reprokit.core.ranks.rank_names import rank_ranges
from reprokit.core.ranks.rank_records import MAX_GRAPHS, RankRecord, RankState
from reprokit.core.records import rank_graphs
from reprokit.core.shared.contract import run_names, serialize
from reprokit.core.shared.errors import BadInput
from reprokit.host.merge import debug_stacks, flight_records, launcher_logs
from reprokit.host.merge.launcher_logs import RankExit
from reprokit.host.pack import reader
from reprokit.host.system import host_log
from reprokit.host.system.progress import OperationStatus

MAX_DEPTH = 5
MAX_FILES = 20_000
MAX_PLACES = 4
MAX_RANKS = 1_000_000
SHOW_AFTER_S = 2.0


@dataclass(frozen=True)
class RankGroup:
    """Ranks that do the same."""

    ranks: tuple[int, ...]
    doing: str
    is_odd: bool = False


@dataclass(frozen=True)
class Merged:
    """The answer for all ranks."""

    reason: str
    odd: tuple[int, ...]
    kind: str
    """A kind of :class:`Desync`, ``position`` if only stacks decide, ``exit`` if only the log of
    the launcher does, or empty.
    """
    groups: tuple[RankGroup, ...]
    """The odd ranks first."""
    ranks: tuple[int, ...]
    """The ranks with any data."""
    without_data: tuple[int, ...]
    since: float | None
    """When the others began to wait, in seconds since the epoch."""
    skipped: tuple[str, ...]
    """Files that could not be read, with the reason."""
    is_sure: bool = True
    """False if the ranks disagree, and nothing decides which of them is the odd one."""
    graphs_differ: str = ""
    """Which rank compiled a different graph, or calls different collectives in one; empty if none
    does.
    """


def merge_folders(
    paths: Iterable[Path], show: Callable[[OperationStatus], None] | None = None
) -> Merged:
    """Read all packs and dumps below ``paths``.

    Raises:
        BadInput: a path does not exist, or nothing below them is of a rank.
    """
    records: dict[int, RankRecord] = {}
    states: dict[int, RankState] = {}
    skipped: list[str] = []
    by_server: list[RankState] = []
    exits: list[RankExit] = []
    found = list(_files_below(paths))
    # their names end with the time
    newest = {p.parent: p for p in sorted(found) if debug_stacks.NAME.fullmatch(p.name)}
    status = OperationStatus("reading", total=len(found))
    for number, path in enumerate(found, 1):
        status.done, status.trying = number, path.name
        if show and time.monotonic() > status.began + SHOW_AFTER_S:
            show(status)
        try:
            if path.name.endswith(".tar.gz"):
                states.update({state.rank: state for state in _states_of_pack(path)})
            elif debug_stacks.NAME.fullmatch(path.name):
                if path == newest[path.parent]:
                    by_server += debug_stacks.read_debug_stacks(path)
            elif launcher_logs.NAME.fullmatch(path.name):
                exits += launcher_logs.read_launcher_log(path)
            elif (rank := flight_records.rank_of_name(path.name)) is not None and _may_be(path):
                record = flight_records.read_flight_record(path, rank)
                # the JSON of a recorder has no frames
                if rank not in records or any(call.place for call in record.calls):
                    records[rank] = record
        except (BadInput, ValueError, OSError) as problem:
            host_log.log_ignored(problem)
            skipped.append(f"{path}: {problem}")
    # the pack of a rank knows more
    states = {**{state.rank: state for state in by_server}, **states}
    if not records and not states and not exits:
        why = f" ({skipped[0]})" if skipped else ""
        raise BadInput(
            "there is no pack of a rank, no dump of a flight recorder and no summary of torchrun"
            f" below {', '.join(map(str, paths))}{why}"
        )
    return merge_ranks(records, states, tuple(skipped), tuple(exits))


def merge_ranks(
    records: dict[int, RankRecord],
    states: dict[int, RankState],
    skipped: tuple[str, ...] = (),
    exits: tuple[RankExit, ...] = (),
) -> Merged:
    """Return the answer for these ranks.

    The exits say why a rank did not come. They decide alone if the collectives do not: then the
    rank that ended first is the odd one, unless it left a dump.
    """
    ended = {one.rank: one.state for one in exits}
    size = max((state.world_size for state in states.values()), default=0)
    members = {r for record in records.values() for ranks in record.members.values() for r in ranks}
    seen = tuple(sorted(records.keys() | states.keys() | ended.keys()))
    world = set(range(size)) | members | set(seen)
    without = tuple(sorted(world - set(seen)))
    desync = find_desync(records, {**ended, **states}, world)
    first = launcher_logs.first_exit(exits)
    since, is_sure = None, True
    if desync is not None and (desync.odd or not states):
        odd, kind, reason = desync.odd, desync.kind, _reason(desync)
        since, is_sure = desync.since_ns / 1e9 or None, desync.is_sure
    else:
        odd, kind, reason = _odd_by_position(states, without)
        if not odd and first is not None and first.rank not in records.keys() | states.keys():
            odd, kind, reason = (first.rank,), "exit", _reason_of_exit(first, exits, records)
        elif without and not odd:
            ranks = rank_ranges(without)
            reason += f"; rank {ranks} left no data, so nobody can tell whether it ended"
            is_sure = False
    groups = _groups(records, {**ended, **states}, odd, desync)
    differ = _difference_of_graphs(states)
    return Merged(reason, odd, kind, groups, seen, without, since, skipped, is_sure, differ)


def _reason_of_exit(
    first: RankExit, exits: tuple[RankExit, ...], records: dict[int, RankRecord]
) -> str:
    """Return that a rank ended first, and the last calls of the others."""
    order = ", before all other ranks that ended" if len(exits) > 1 else ""
    last = {rank: record.calls[-1] for rank, record in sorted(records.items()) if record.calls}
    rows = [
        f"the last call of rank {rank} is {call.title}{f' at {call.place}' if call.place else ''}"
        for rank, call in list(last.items())[:MAX_PLACES]
    ]
    return "; ".join((first.summary + order, *rows))


def _difference_of_graphs(states: dict[int, RankState]) -> str:
    """Return which rank compiled a different graph; empty if none did, or if none was recorded."""
    graphs = [
        dataclasses.replace(graph, rank=str(rank))
        for rank, state in sorted(states.items())
        for graph in state.graphs[:MAX_GRAPHS]
        if graph.digest
    ]
    mismatch = rank_graphs.mismatch_of_graphs(graphs)
    texts = (rank_graphs.describe_mismatch(graphs), mismatch.summary if mismatch else "")
    return "; ".join(filter(None, texts))


def _reason(desync: Desync) -> str:
    call, count = desync.expected, len(desync.others)
    at = f" at {call.place}" if call.place else ""
    if desync.kind == "incomplete":
        who = "1 rank" if count == 1 else f"{count} ranks"
        why = desync.details or ("the network or a device may be the cause",)
        group = desync.group or "default"
        return (
            f"{who} called {call.title} of group {group}{at}, and it did not complete:"
            f" {'; '.join(why)}"
        )
    if not desync.is_sure and desync.kind == "missing":
        return "; ".join(desync.details)
    if not desync.is_sure:
        return f"{'; '.join(desync.details)}: with as many ranks on each side, none is the odd one"
    waits = "1 rank waits" if count == 1 else f"{count} ranks wait"
    when = time.strftime("%H:%M:%S", time.localtime(desync.since_ns / 1e9))
    since = f" since {when}" if desync.since_ns else ""
    details = "; ".join(desync.details[:MAX_PLACES])
    more = len(desync.details) - MAX_PLACES
    details += f"; and {more} more ranks" if more > 0 else ""
    if not desync.others:
        return details
    return f"{details}; {waits} in {call.title}{at}{since}"


def _odd_by_position(
    states: dict[int, RankState], without: tuple[int, ...]
) -> tuple[tuple[int, ...], str, str]:
    """Return the odd ranks by their stacks, the kind, and the reason."""
    waiting = sorted(rank for rank, state in states.items() if state.operation)
    others = sorted(states.keys() - set(waiting))
    if waiting and (others or without):
        odd = tuple(others or without)
        details = [states[r].summary if r in states else f"rank {r} left no data" for r in odd]
        waits = "1 rank waits" if len(waiting) == 1 else f"{len(waiting)} ranks wait"
        operation = states[waiting[0]].operation
        return odd, "position", f"{'; '.join(details[:MAX_PLACES])}; {waits} in {operation}"
    if waiting:
        operations = sorted({states[rank].operation for rank in waiting})
        if len(operations) > 1:
            return (), "position", f"the ranks wait in different operations: {operations}"
        return (), "", f"all {len(waiting)} ranks wait in {operations[0]}"
    return (), "", "no rank waits in a collective"


def _groups(
    records: dict[int, RankRecord],
    states: dict[int, RankState],
    odd: tuple[int, ...],
    desync: Desync | None,
) -> tuple[RankGroup, ...]:
    doing: dict[str, list[int]] = {}
    for rank in sorted(records.keys() | states.keys() | set(odd)):
        doing.setdefault(_doing(rank, records, states, desync), []).append(rank)
    rows = [RankGroup(tuple(r), text, bool(set(r) & set(odd))) for text, r in doing.items()]
    return tuple(sorted(rows, key=lambda row: (not row.is_odd, len(row.ranks), row.ranks)))


def _doing(
    rank: int, records: dict[int, RankRecord], states: dict[int, RankState], desync: Desync | None
) -> str:
    """Describe what one rank does, without its number."""
    parts = []
    if rank in states:
        parts.append(states[rank].summary.removeprefix(f"rank {rank} "))
    calls = records[rank].calls if rank in records else ()
    if desync is not None:
        calls = tuple(call for call in calls if call.group == desync.group)
        calls = tuple(c for c in calls if c.number == desync.number) or calls
    if calls:
        call = calls[0] if desync and calls[0].number == desync.number else calls[-1]
        at = f" at {call.place}" if call.place else ""
        state = "done" if call.is_done else "not done"
        parts.append(f"{call.title}, {call.sizes} {call.dtypes}{at}, {state}")
    return "; ".join(parts) or "no data"


def _states_of_pack(path: Path) -> tuple[RankState, ...]:
    pack = reader.read_pack(path, lambda name: name == run_names.RANKS_FILE)
    document = pack.read_json(run_names.RANKS_FILE)
    states: tuple[RankState, ...] = serialize.from_json(
        tuple[RankState, ...], document.get("ranks") or ()
    )
    if any(not 0 <= s.rank < MAX_RANKS or not 0 <= s.world_size <= MAX_RANKS for s in states):
        raise ValueError(f"its {run_names.RANKS_FILE} has more than {MAX_RANKS} ranks")
    return states


def _may_be(path: Path) -> bool:
    """Return whether a file begins like a pickle or a JSON object."""
    with path.open("rb") as file:
        return file.read(1) in (b"\x80", b"{")


def _files_below(paths: Iterable[Path]) -> Iterator[Path]:
    count = 0
    for top in paths:
        if not top.exists():
            raise BadInput(f"there is no folder {top}")
        if top.is_file():
            yield top
            continue
        for folder, folders, names in os.walk(top):
            if len(Path(folder).relative_to(top).parts) >= MAX_DEPTH:
                folders.clear()
            # the data of a run before its redaction; the pack beside it has the same
            folders[:] = sorted(name for name in folders if not name.startswith("run-"))
            for name in sorted(names):
                path = Path(folder, name)
                if path.is_file() and not path.is_symlink():
                    count += 1
                    if count > MAX_FILES:
                        raise BadInput(f"there are more than {MAX_FILES} files below {top}")
                    yield path
