"""The failures that do not end a program: wrong results, repeated recompiles, graph breaks."""

from __future__ import annotations

import re

from reprokit.core.judge import growing_memory, slow_calls
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.evidence import (
    ends_by_itself,
    has_ended_normally,
    is_from_compiler,
)
from reprokit.core.judge.stacks.location import as_sentence, plural
from reprokit.core.records import rank_graphs
from reprokit.core.records.caches.cache_uses import MISS_MESSAGE
from reprokit.core.records.dumps import Link
from reprokit.core.records.finding import Verdict
from reprokit.core.records.memory_use import megabytes
from reprokit.core.records.observation import Observation
from reprokit.core.records.recompiles import (
    BREAK_MESSAGE,
    MIN_STORM_RECOMPILES,
    STORM_MESSAGE,
    GraphBreak,
)
from reprokit.core.records.remarks.cudagraph_skips import SKIP_PREFIX, reason_family
from reprokit.core.records.verdict_kinds import NONDETERMINISTIC, kind_named

_LIMIT_ERRORS = ("FailOnRecompileLimitHit", "RecompileLimitExceeded")
"""The exceptions that torch raises at a recompile limit if it is configured to fail there."""
MAX_GROUPS = 8
"""Limit of the kinds of tensors at a peak that the evidence names."""
MAX_MORE_WRONG = 5
"""Limit of the results that are listed after the first one that is wrong."""


def _wrong_result(seen: Observation) -> Verdict | None:
    if seen.comparison is None or not (wrong := seen.comparison.wrong):
        return None
    if seen.raised is not None and is_from_compiler(seen.raised, seen):
        return None  # a different failure; the program's own exception may be caused by the results
    known = {
        "compiled": "the float64 run shows that compiled code is wrong",
        "unknown": "there is no float64 run to decide which side is wrong",
    }
    ranks = seen.comparison.ranks
    on = f" on rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else ""
    why = f"compiled code gives different results than eager{on}: {wrong[0]}"
    if seen.stage:
        known["unknown"] = "the results are compared with those of a fresh compile"
        row = str(wrong[0]).replace("eager gives", "a fresh compile gives")
        row = row.replace("compiled code", "code from the cache")
        why = f"it gives different results than a fresh compile{on}: {row}"
    shown = wrong[: 1 + MAX_MORE_WRONG]
    count = seen.comparison.count - len(shown)
    more = (f"{count} more result{'s differ' if count > 1 else ' differs'}",) if count > 0 else ()
    departs = tuple(filter(None, (seen.broken_contract, seen.departure)))
    skipped = (seen.comparison.skipped,) if seen.comparison.skipped else ()
    evidence = (known[wrong[0].side], *departs, *map(str, shown[1:]), *more, *skipped)
    work = {"op": seen.departs} if seen.departs else {}
    work |= {"line": seen.departs_at} if seen.departs_at else {}
    if seen.comparison.is_nondeterministic and not seen.stage:
        why = f"compiled code gives different results each time, and eager does not{on}: {wrong[0]}"
        return Verdict(NONDETERMINISTIC, None, wrong[0].what, as_sentence(why), evidence)
    return Verdict(
        "wrong-result",
        seen.failing_part or None,
        wrong[0].what,
        as_sentence(why),
        evidence,
        work=work,
    )


def _recompiled(seen: Observation) -> Verdict | None:
    if not seen.recompiled:
        return None
    is_ended = seen.raised is not None or seen.exit_status != 0
    if is_ended and not (seen.raised and any(map(_is_recompile_error, seen.raised.chain))):
        return None
    worst = seen.recompiled[0]
    if not worst.limit and worst.count < MIN_STORM_RECOMPILES:
        return None
    kind = "recompile-limit" if worst.limit else "recompile-storm"
    how = (
        f"reached {worst.limit}, and the program ended"
        if worst.limit and is_ended
        else f"reached {worst.limit}, so Dynamo no longer compiles it"
        if worst.limit
        else "was compiled again and again"
    )
    fails = "the guard that fails is" if len(worst.changing) < 2 else "the guards that fail are on"
    why = (
        f"`{worst.function}` {how}: {fails} {worst.changes};"
        f" {plural(worst.count, 'recompile')}, {worst.cpu_s:.1f} CPU-seconds"
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
        f"guard that failed in {len(guards)} of {plural(worst.count, 'recompile')}: {guards[-1]}"
        for guards in worst.changing[1:]
    ]
    evidence += [
        f"{r.function} ({r.file}:{r.line}) too: {plural(r.count, 'recompile')}"
        for r in seen.recompiled[1:4]
    ]
    line = _users_line(worst.where or f"{worst.file}:{worst.line}", worst.caller)
    work = {"function": worst.function, "line": line}
    return Verdict(
        kind,
        "guards",
        worst.limit or "recompiles",
        as_sentence(why),
        tuple(e for e in evidence if e),
        work=work,
    )


def _graph_break(seen: Observation) -> Verdict | None:
    chain = seen.raised.chain if seen.raised else ()
    if seen.breaks and any(_is_assertion(link, BREAK_MESSAGE) for link in chain):
        return _broken(
            seen,
            seen.breaks[0],
            f"a graph breaks: {seen.breaks[0].reason}, at {seen.breaks[0].where}",
        )
    if seen.raised is not None and not seen.is_timed_out:
        given_up = [b for b in seen.breaks if b.is_given_up]
        if (
            _short(fr.root_cause(seen.raised)) != "Unsupported"
            or not given_up
            or (seen.exit_status == 0 and seen.is_command)
        ):
            return None
        last = given_up[-1]
        why = f"`fullgraph=True` is set, and the graph breaks: {last.reason}, at {last.where}"
        return _broken(seen, last, why)
    if not has_ended_normally(seen) or not seen.breaks:
        return None
    count = sum(b.count for b in seen.breaks)
    first = seen.breaks[0]
    if seen.most_breaks is not None and count > seen.most_breaks:
        why = (
            f"{plural(count, 'graph break')}, and {seen.most_breaks} allowed: {first.reason}, at"
            f" {first.where}"
        )
        return _broken(seen, first, why)
    if not any(g.is_entered for g in seen.graphs):
        return _broken(
            seen, first, f"nothing was compiled: Dynamo gave up: {first.reason}, at {first.where}"
        )
    return None


def _users_line(where: str, caller: str) -> str:
    """Return the line of a graph break or of a guard, or the user's line that calls it if it is in
    Python, torch or a package.
    """
    file = fr.normalise_file(re.sub(r":\d+(?: in .*)?$", "", where))
    return where if file == "<user>" or not caller else caller


def _skipped(seen: Observation) -> Verdict | None:
    if not seen.skips:
        return None
    chain = seen.raised.chain if seen.raised else ()
    is_reported = any(SKIP_PREFIX in link.message for link in chain)
    if not is_reported and not has_ended_normally(seen):
        return None
    first = seen.skips[0]
    at = f" at {first.where}" if first.where else ""
    why = f"CUDA graphs are skipped: {first.reason}{at}"
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


def _cache_missed(seen: Observation) -> Verdict | None:
    if not seen.missed:
        return None
    chain = seen.raised.chain if seen.raised else ()
    is_checked = any(_is_assertion(link, MISS_MESSAGE) for link in chain)
    if not is_checked and not has_ended_normally(seen):
        return None
    first = seen.missed[0]
    why = f"a graph is compiled although the cache has its entry: the {first.cause}"
    evidence = tuple(
        f"{m.cause}: key {m.key[:12]}{', ' + m.detail if m.detail else ''}" for m in seen.missed[:8]
    )
    return Verdict("cache-miss", "cache-load", first.cause, as_sentence(why), evidence)


def _ranks_differ(seen: Observation) -> Verdict | None:
    if (
        not seen.simulated
        or seen.breaks
        or seen.raised is not None
        or seen.exit_status != 0
        or not seen.has_finished
    ):
        return None  # real ranks would hang; collectives outside of graphs are not recorded
    mismatch = rank_graphs.mismatch_of_graphs(seen.graphs)
    if mismatch is None:
        return None
    evidence = (seen.graphs_differ,) if seen.graphs_differ else ()
    cause = f"{mismatch.does} {mismatch.call.name.split(' of ')[0]}"
    work = {"line": mismatch.call.where} if mismatch.call.where else {}
    why = f"{mismatch.summary}; on real ranks the others would wait forever"
    return Verdict("rank-mismatch", "dynamo-trace", cause, as_sentence(why), evidence, work=work)


def _needs_memory(seen: Observation) -> Verdict | None:
    if seen.memory is None or not seen.memory.is_larger or not ends_by_itself(seen):
        return None
    compiled, eager = seen.memory.compiled.peak, seen.memory.eager.peak
    phase, use = compiled
    at = f" in {use.at}" * bool(use.at)
    why = (
        f"the compiled program needs {megabytes(use.peak_bytes)} at its peak, in the {phase}"
        f" pass{at}, and eager {megabytes(eager[1].peak_bytes)}: {seen.memory.ratio:.2f} times as"
        " much"
    )
    if use.groups:
        why += f"; the most of it: {use.groups[0]}"
    evidence = [as_sentence(seen.memory.summary), *use.groups[:MAX_GROUPS]]
    rest = len(use.groups) - MAX_GROUPS
    evidence += [f"{rest} more kinds of tensors exist at the peak"] * (rest > 0)
    line = next((tensor.line for tensor in use.tensors if tensor.line), "")
    return Verdict(
        "peak-memory",
        "kernel-run",
        f"{phase}, {use.reason}" if use.reason else phase,
        as_sentence(why),
        tuple(evidence),
        work={"line": line} if line else {},
    )


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
        work={"line": _users_line(first.where, first.caller)},
    )


def is_tolerated(verdict: Verdict, seen: Observation) -> bool:
    """Return True for what PyTorch regards as working, in a program that goes on to its normal end,
    if the user does not call it a failure.
    """
    word = kind_named(verdict.kind).fail_on
    return bool(word) and word not in seen.fail_on and has_ended_normally(seen)


def notes_on_ok(seen: Observation) -> tuple[str, ...]:
    """Return the notes on a healthy run: its comparison, recompiles and graph breaks."""
    rows = [as_sentence(seen.comparison.summary)] if seen.comparison else []
    rows += slow_calls.notes_on_speed(seen.speed) if seen.speed else ()
    rows += [as_sentence(seen.memory.summary)] if seen.memory else []
    rows += [
        f"{r.function} was compiled {r.count + 1} times: {r.changes}" for r in seen.recompiled[:3]
    ]
    rows += [f"graph break at {b.where}: {b.reason}" for b in seen.breaks[:5]]
    rows += [seen.graphs_differ] if seen.graphs_differ else []
    rows += [stage.sentence for stage in seen.stages]
    rows += growing_memory.notes_on_calls(seen)
    return tuple(rows)


QUESTIONS = (
    _wrong_result,
    growing_memory.judge_growth,
    _recompiled,
    _graph_break,
    _skipped,
    _ranks_differ,
    _cache_missed,
    slow_calls.judge_speed,
    _needs_memory,
)
"""The functions that ``verdict.judge_run`` tries, in this order."""


def _is_recompile_error(link: Link) -> bool:
    return _short(link) in _LIMIT_ERRORS or _is_assertion(link, STORM_MESSAGE)


def _is_assertion(link: Link, message: str) -> bool:
    """Return whether an exception is the assertion of a repro with this message."""
    return _short(link) == "AssertionError" and link.message.strip() == message


def _short(link: Link) -> str:
    return link.type.rsplit(".", 1)[-1]
