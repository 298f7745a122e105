"""The failures that stop no program: wrong results, recompiles without end, graphs that break."""

from __future__ import annotations

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.location import as_sentence
from reprokit.core.records import rank_graphs
from reprokit.core.records.cudagraph_skips import PREFIX, reason_family
from reprokit.core.records.dumps import Link
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.recompiles import BROKEN, STORM, TOLD, GraphBreak

_ASKED_TO_FAIL = ("FailOnRecompileLimitHit", "RecompileLimitExceeded")
"""What torch raises instead of going on, where it is told to."""


def _wrong_result(seen: Observation) -> Verdict | None:
    if seen.comparison is None or not (wrong := seen.comparison.wrong):
        return None
    if seen.raised is not None and _short(fr.root_cause(seen.raised)) != "AssertionError":
        # a program may check its results itself; any other exception is a story of its own
        return None
    known = {
        "compiled": "float64 says that compiled code is wrong",
        "unknown": "there is no float64 run to judge by",
    }
    ranks = seen.comparison.ranks
    on = f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""
    why = f"compiled code gives other results than eager{on}: {wrong[0]}"
    more = (
        (f"{seen.comparison.count - 1} more results differ",) if seen.comparison.count > 1 else ()
    )
    departs = (seen.departure,) if seen.departure else ()
    skipped = (seen.comparison.skipped,) if seen.comparison.skipped else ()
    evidence = (known[wrong[0].side], *departs, *map(str, wrong[1:6]), *more, *skipped)
    work = {"op": seen.departs} if seen.departs else {}
    return Verdict(
        "wrong-result",
        seen.first_rung or None,
        wrong[0].what,
        as_sentence(why),
        evidence,
        work=work,
    )


def _recompiled(seen: Observation) -> Verdict | None:
    if not seen.recompiled:
        return None
    is_ended = seen.raised is not None or seen.exit_status != 0
    if is_ended and not (seen.raised and any(_is_asked_for(link) for link in seen.raised.chain)):
        return None
    worst = seen.recompiled[0]
    if not worst.limit and worst.count < STORM:
        return None
    kind = "recompile-limit" if worst.limit else "recompile-storm"
    how = (
        f"hit {worst.limit} and runs without the compiler from then on"
        if worst.limit
        else "was compiled again and again"
    )
    why = (
        f"{worst.function} {how}: {worst.count} recompiles, {worst.cpu_s:.1f} CPU-seconds; what"
        f" changes is {worst.changes}"
    )
    evidence = [
        (
            f"{worst.where or worst.file + ':' + str(worst.line)}: {worst.code}"
            if worst.code
            else worst.where
        )
    ]
    evidence += [f"guard that failed: {guard}" for guard in worst.guards[:8]]
    evidence += [
        f"{r.function} ({r.file}:{r.line}) too: {r.count} recompiles" for r in seen.recompiled[1:4]
    ]
    work = {"function": worst.function, "line": worst.where or f"{worst.file}:{worst.line}"}
    return Verdict(
        kind,
        "guards",
        worst.limit or "recompiles",
        as_sentence(why),
        tuple(e for e in evidence if e),
        work=work,
    )


def _graph_break(seen: Observation) -> Verdict | None:
    is_told = seen.raised is not None and any(_says(link, BROKEN) for link in seen.raised.chain)
    if is_told and seen.breaks:
        return _broken(
            seen,
            seen.breaks[0],
            f"a graph breaks at {seen.breaks[0].where}: {seen.breaks[0].reason}",
        )
    if seen.raised is not None and not seen.is_timed_out:
        found = [b for b in seen.breaks if b.is_given_up]
        if (
            _short(fr.root_cause(seen.raised)) != "Unsupported"
            or not found
            or (seen.exit_status == 0 and seen.is_command)
        ):
            return None
        where, said = found[-1].where, found[-1].reason
        return _broken(
            seen, found[-1], f"a whole graph was asked for, and Dynamo cannot trace {where}: {said}"
        )
    if seen.exit_status != 0 or not (seen.is_command or seen.has_finished) or not seen.breaks:
        return None
    count = sum(b.count for b in seen.breaks)
    first = seen.breaks[0]
    if seen.most_breaks is not None and count > seen.most_breaks:
        why = (
            f"{count} graph breaks, and {seen.most_breaks} were allowed; the first is at"
            f" {first.where}: {first.reason}"
        )
        return _broken(seen, first, why)
    if not any(g.level == "dynamo" for g in seen.graphs):
        return _broken(
            seen, first, f"nothing was compiled: Dynamo gave up at {first.where}: {first.reason}"
        )
    return None


def _skipped(seen: Observation) -> Verdict | None:
    if not seen.skips:
        return None
    is_told = seen.raised is not None and any(PREFIX in link.message for link in seen.raised.chain)
    has_ended = seen.exit_status == 0 and (seen.is_command or seen.has_finished)
    if not is_told and not has_ended:
        return None
    first = seen.skips[0]
    at = f" at {first.where}" if first.where else ""
    why = f"CUDA graphs were asked for, and Inductor skips them due to {first.reason}{at}"
    evidence = tuple(
        f"{s.reason}{': ' + s.where if s.where else ''}" + f", {s.count} times" * (s.count > 1)
        for s in seen.skips[:8]
    )
    work = {"line": first.where} if first.where else {}
    return Verdict(
        "cudagraph-skip",
        "cudagraphs",
        reason_family(first.reason),
        as_sentence(why),
        evidence,
        work=work,
    )


def _ranks_differ(seen: Observation) -> Verdict | None:
    if (
        not seen.simulated
        or seen.breaks
        or seen.raised is not None
        or seen.exit_status != 0
        or not seen.has_finished
    ):
        return None  # real ranks would have hung; and what broken graphs call in eager is not seen
    found = rank_graphs.mismatch_of_graphs(seen.graphs)
    if found is None:
        return None
    evidence = (seen.graphs_differ,) if seen.graphs_differ else ()
    cause = f"{found.does} {found.call.name.split(' of ')[0]}"
    work = {"line": found.call.where} if found.call.where else {}
    why = f"{found.says}; on real ranks the others would wait for ever"
    return Verdict("rank-mismatch", "dynamo-trace", cause, as_sentence(why), evidence, work=work)


def _broken(seen: Observation, first: GraphBreak, why: str) -> Verdict:
    evidence = tuple(
        f"{b.where}: {b.reason}" + (f", {b.count} times" if b.count > 1 else "")
        for b in seen.breaks[:8]
    )
    return Verdict(
        "graph-break",
        "dynamo-trace",
        first.reason,
        as_sentence(why),
        evidence,
        detail=first.detail,
        work={"line": first.where},
    )


def notes_on_ok(seen: Observation) -> tuple[str, ...]:
    """What a healthy run has of all that, in small."""
    rows = [as_sentence(seen.comparison.says)] if seen.comparison else []
    rows += [
        f"{r.function} was compiled {r.count + 1} times: {r.changes}" for r in seen.recompiled[:3]
    ]
    rows += [f"graph break at {b.where}: {b.reason}" for b in seen.breaks[:5]]
    rows += [seen.graphs_differ] if seen.graphs_differ else []
    return tuple(rows)


QUESTIONS = (_wrong_result, _recompiled, _graph_break, _skipped, _ranks_differ)
"""For ``verdict.judge``, in its order."""


def _is_asked_for(link: Link) -> bool:
    return _short(link) in _ASKED_TO_FAIL or _says(link, TOLD)


def _says(link: Link, what: str) -> bool:
    """A repro's own assertion."""
    return _short(link) == "AssertionError" and link.message.strip() == what


def _short(link: Link) -> str:
    return link.type.rsplit(".", 1)[-1]
