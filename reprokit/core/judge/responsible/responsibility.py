"""Decide who is responsible for a failure, and whether it can be filed upstream.

One function decides, only from the evidence. Every text that mentions filing (the terminal, the
issue, labels, ``reprokit issue``) uses this module.
"""

from __future__ import annotations

import dataclasses
import re

from reprokit.core.judge.hangs import lock_cycles, ranks
from reprokit.core.judge.responsible import (
    cache_questions,
    documented_limits,
    growth_questions,
    machine_questions,
    ownership,
    simulation_gaps,
)
from reprokit.core.judge.responsible.parties import UPSTREAM, Responsible
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks import phases
from reprokit.core.judge.stacks.evidence import blamed_exception, ends_by_check, is_from_compiler
from reprokit.core.judge.stacks.location import as_sentence
from reprokit.core.judge.stacks.messages import error_of_gpu_kernel
from reprokit.core.records import crash_sites
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.records.verdict_kinds import FAILED_CHECK, NONDETERMINISTIC, kind_named
from reprokit.core.shared.contract.measured_kinds import MEMORY_GROWTH
from reprokit.core.shared.operators import is_torch_namespace

_ABOUT_COMPILER = re.compile(
    r"_dynamo|_inductor|torch\.compiler|is_\w*compiling|recompil|compilation|compiles\b"
    r"|compile_(?:count|time|id)|(?:frames?|times|count|num|n)_\w*compil|counter|graph",
    re.IGNORECASE,
)
"""Words of a check that is about what the compiler does; ``compiled(x)`` is no such word."""
_BEFORE_OWN = ("dynamo-trace", "guards")
"""Phases before any of the program's own backends and passes."""


def decide_responsible(verdict: Verdict, seen: Observation) -> Responsible:
    """Return the party that is responsible for ``verdict``. The same evidence always gets the same
    answer.

    The first question that has an answer decides.
    """
    if verdict.kind == "ok":
        return Responsible("")
    if verdict.cause == simulation_gaps.CAUSE:
        return Responsible("reprokit", (verdict.reason,), verdict.detail)
    questions = (
        _reprokit,
        machine_questions.machine,
        cache_questions.damaged_file,
        cache_questions.stale_key,
        cache_questions.missed_entry,
        machine_questions.driver,
        _gpu_kernel,
        _unjudged,
        _without_compiler,
        _different_ranks,
        growth_questions.held_by_program,
        growth_questions.kept_by_dynamo,
        growth_questions.not_compared,
        documented_limits.changing_value,
        documented_limits.broken_graph,
        documented_limits.skipped_cuda_graph,
        documented_limits.specialized_size,
        documented_limits.may_fail_in_eager,
        documented_limits.index_out_of_bounds,
        documented_limits.undefined_conversion,
        documented_limits.cost_of_calls,
        _own_code,
        _absent_rank,
        _ranks_that_disagree,
        _needs_own_code,
        _custom_operator,
        _failed_check,
        _damaged_memory,
        _triton,
        _memory,
        _outside_compiler,
        _undecided,
    )
    answers = (question(verdict, seen) for question in questions)
    first = next((answer for answer in answers if answer is not None), None)
    first = first or _rest(verdict, seen)
    if seen.why_not_plain and not seen.names_reprokit:
        return dataclasses.replace(first, because=(*first.because, _not_plain(seen)))
    return first


def _reprokit(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a failure that the program does not have without reprokit."""
    names = f" Its evidence names {seen.names_reprokit}." if seen.names_reprokit else ""
    if seen.plain == "passes":
        return Responsible("reprokit", (f"Without reprokit the program passes.{names}",))
    if names and not seen.plain:
        return Responsible("unknown", (names.strip(), _not_plain(seen)))
    return None


def _not_plain(seen: Observation) -> str:
    return f"No run without reprokit shows the failure: {seen.why_not_plain or 'there was none'}."


def _gpu_kernel(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for an error of a kernel on a GPU. A later call reported it, so its stack shows
    nothing.
    """
    raised = blamed_exception(seen)
    if verdict.kind not in ("exception", "error-in-eager") or raised is None:
        return None
    error = error_of_gpu_kernel(fr.root_cause(raised).message)
    if not error:
        return None
    if verdict.kind == "exception" and seen.eager == "passes":
        why = f"A kernel failed with '{error}'; without torch.compile, no kernel fails."
        return Responsible("torch", (why,))
    why = f"A kernel failed with '{error}', and nothing shows which code launched it."
    return Responsible("unknown", (why,))


def _unjudged(verdict: Verdict, seen: Observation) -> Responsible | None:
    return Responsible("unknown", (verdict.reason,)) if verdict.kind == "unknown" else None


def _without_compiler(verdict: Verdict, seen: Observation) -> Responsible | None:
    if verdict.kind != "error-in-eager":
        return None
    frames = ownership.stack_of(verdict, seen)
    place = ownership.traced_own(seen) or ownership.innermost_own(frames)
    is_elsewhere = seen.raised is None and not ownership.is_own(frames[0].file) if frames else True
    if place is None or is_elsewhere:
        return Responsible("unknown", (verdict.reason,))
    return Responsible("user", (verdict.reason,), place.at)


def _different_ranks(verdict: Verdict, seen: Observation) -> Responsible | None:
    if verdict.kind != "rank-mismatch":
        return None
    line = re.match(r".+?:\d+", verdict.work.get("line", ""))
    return Responsible(
        "user",
        ("The ranks of the program compile different graphs.",),
        line.group() if line else "",
    )


def _own_code(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a pass, backend, lowering, decomposition or operator of the program that raises,
    crashes or hangs.
    """
    if verdict.kind not in ("exception", "crash", "hang", "oom", "slow-compile"):
        return None
    place = ownership.called_by_compiler(ownership.stack_of(verdict, seen))
    if place is None:
        return None
    what = {
        "exception": "raised",
        "hang": "did not return",
        "oom": "ran out of memory",
        "slow-compile": "was still running at the deadline",
    }.get(verdict.kind, "crashed")
    why = f"torch called {place.function} in {place.words}, and it {what}."
    return Responsible("user", (why,), place.at)


def _absent_rank(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a rank that is in the program's own code while the others wait in a collective."""
    if verdict.kind != "hang" or verdict.phase != "collective":
        return None
    for view in ranks.rank_views(seen):
        if view.operation or view.has_ended or view.phase in phases.COMPILE_PHASES:
            continue
        place = ownership.innermost_own(view.raw)
        kept, _ = fr.RULES.significant_frames(view.frames, 1)
        is_in_torch = bool(kept) and kept[0].file.startswith("torch/")
        if place is not None and not is_in_torch and not fr.RULES.is_compiled(view.frames):
            why = f"Rank {view.rank} is in {place.words}, while others wait in a collective."
            return Responsible("user", (why,), place.at)
    return None


def _ranks_that_disagree(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for ranks that wait in different collectives which the program calls, and for a
    collective outside of compiled code that shows no such difference.

    Ranks may call one collective at different lines, and one sends what a different one receives.
    """
    if verdict.kind != "hang" or verdict.phase != "collective":
        return None
    views = ranks.rank_views(seen)
    waiting = [group[0] for group in ranks.merged_views(views) if group[0].operation]
    operations = {view.operation for view in waiting}
    is_between_two = any("send" in name or "recv" in name for name in operations)
    is_by_program = all(view.is_called_by_program for view in waiting)
    if len(operations) > 1 and is_by_program and not is_between_two:
        odd = waiting[0].caller
        calls = " and ".join(view.summary for view in waiting[:2])
        why = f"The program calls different collectives on its ranks: {calls}."
        return Responsible("user", (why,), f"{odd.file}:{odd.line}" if odd else "")
    if any(fr.RULES.is_compiled(view.frames) for view in views):
        return None
    return Responsible(
        "unknown", ("No frame of the compiler is on the stack of a rank that reprokit saw.",)
    )


def _needs_own_code(verdict: Verdict, seen: Observation) -> Responsible | None:
    it = "A part of it" if seen.is_need_of_part else "It"
    if seen.fails_only_with == "passes":
        why = f"{it} passes without the program's own passes."
        return Responsible("user", (why,), next(iter(seen.own_passes), ""))
    if seen.fails_only_with == "backend":
        why = f"{it} fails with the program's own backend, and with none of torch's backends."
        return Responsible("user", (why,), seen.own_backend)
    if seen.fails_only_with == "dynamic=False":
        why = f"{it} passes without `dynamic=False`, with which each size is compiled anew."
        return Responsible("user", (why,), re.sub(r"(:\d+).*", r"\1", verdict.work.get("line", "")))
    if seen.fails_only_with == "nothing":
        return Responsible("unknown", (as_sentence(seen.eager_detail),))
    return None


def _undecided(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check whether the program's own passes or backend took part, without a run that shows whether
    they matter.
    """
    if (
        seen.fails_only_with
        or not (seen.own_passes or seen.own_backend)
        or verdict.phase in _BEFORE_OWN
    ):
        return None
    if verdict.kind not in (
        "exception",
        "crash",
        "hang",
        "wrong-result",
        NONDETERMINISTIC,
        MEMORY_GROWTH,
    ):
        return None
    what = "backend" if seen.own_backend else "passes"
    return Responsible(
        "unknown",
        (f"The program's own {what} took part, and no run shows what happens without.",),
    )


def _custom_operator(verdict: Verdict, seen: Observation) -> Responsible | None:
    operator = ownership.custom_operator(verdict, seen)
    if not operator:
        return None
    if operator == seen.broken_operator:
        why = f"{seen.broken_contract[:1].upper()}{seen.broken_contract[1:]}."
    elif kind_named(verdict.kind).compares_results:
        _, _, problem = seen.departure.partition("; ")
        why = (
            f"{problem[:1].upper()}{problem[1:]}."
            if problem
            else f"The results differ first at the custom operator {operator}."
        )
    elif verdict.phase == "dynamo-trace":
        why = f"The fake kernel of the custom operator {operator} raised an exception."
    else:
        why = f"The fake kernel of {operator} disagrees with its real result."
    return Responsible("user", (why,), operator)


def _failed_check(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a failed check of the program. One of what the compiler does is no defect."""
    if verdict.kind != FAILED_CHECK:
        return None
    if ends_by_check(seen) and _ABOUT_COMPILER.search(seen.check):
        return Responsible("unknown", ("The check is about the compiler itself.",))
    return Responsible("torch", (verdict.reason,))


def _damaged_memory(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for generated code with an error that the sanitizers name, and for a heap that unknown
    code damaged.
    """
    if verdict.kind != "crash":
        return None
    site = seen.crash_site
    if site is not None and site.place == crash_sites.GENERATED:
        maker = site.made_by.partition(".")[0]
        if maker and not is_torch_namespace(maker):
            return Responsible("unknown", (f"{site.made_by} returned the buffer.",))
        named = f" for {site.operator}" * bool(site.operator)
        why = f"The sanitizers report the {site.family} in code that Inductor generated{named}."
        return Responsible("torch", (why,))
    if fr.parse_heap_error(seen.stderr_tail):
        why = "glibc reported a damaged heap, and nothing shows which code damaged it."
        return Responsible("unknown", (why,))
    return None


def _triton(verdict: Verdict, seen: Observation) -> Responsible | None:
    if seen.kernel:
        return Responsible("triton", ("Triton alone fails to compile the kernel.",))
    if verdict.phase not in (*phases.TRITON_STAGES, "triton-compile"):
        return None
    inner = next(
        (
            f
            for f in fr.normalise_frames(ownership.stack_of(verdict, seen))
            if not f.file.startswith("<")
        ),
        None,
    )
    if inner is None or not inner.file.startswith("triton/"):
        return None
    return Responsible(
        "triton", (f"The failure is in {fr.show_frame(inner)}, in phase {verdict.phase}.",)
    )


def _memory(verdict: Verdict, seen: Observation) -> Responsible | None:
    if verdict.kind != "oom":
        return None
    if verdict.phase in phases.COMPILE_PHASES:
        return Responsible(
            "torch", (f"Memory ran out while the compiler was working, in phase {verdict.phase}.",)
        )
    return Responsible("machine", ("Memory ran out while the compiler was not working.",))


def _outside_compiler(verdict: Verdict, seen: Observation) -> Responsible | None:
    """Check for a hang without the compiler and without compiled code on the stack, and for an
    exception of a command's own code that only the run with torch.compile raised.
    """
    if verdict.kind == "exception" and verdict.phase is None and seen.is_command:
        raised = blamed_exception(seen)
        if raised is not None and not is_from_compiler(raised, seen):
            why = f"in eager {seen.eager_detail or 'the target passes'}"
            return Responsible("unknown", (as_sentence(why),))
    if verdict.kind != "hang" or verdict.phase in (
        *phases.COMPILE_PHASES,
        "kernel-run",
        "collective",
    ):
        return None
    frames = ownership.stack_of(verdict, seen)
    if not frames or fr.RULES.is_compiled(fr.normalise_frames(frames)):
        return None
    place = ownership.innermost_own(frames)
    significant, _ = fr.RULES.significant_frames(fr.normalise_frames(frames), 1)
    if place is None or (significant and significant[0].file.startswith("torch/")):
        return Responsible(
            "unknown", ("No frame of the compiler is on the stack that did not move.",)
        )
    users = ownership.waiting_own(frames) or place
    called = f", called at {users.at}" * bool(place.package and not users.package)
    why = (
        "Its threads wait for each other's locks."
        if lock_cycles.find_cycle(seen)
        else as_sentence(verdict.detail.partition("; ")[0])
        if verdict.cause == "deadlock"
        else f"The stack that did not move ends in {place.words}{called}, and no frame of the"
        " compiler is on it."
    )
    return Responsible("user", (why,), users.at)


def _rest(verdict: Verdict, seen: Observation) -> Responsible:
    """Return torch, unless the failure is in code that ``exec`` made, which may be anybody's. While
    a loop is traced, its frames move.
    """
    frames = fr.normalise_frames(ownership.stack_of(verdict, seen))
    kept, _ = fr.RULES.significant_frames(frames, 1)
    if not kept or verdict.kind not in ("exception", "crash", "hang") or seen.endless_line:
        return Responsible("torch", (verdict.reason,))
    if kept[0].file == "<user>":
        why = f"The failure is in {kept[0].function}, and nothing shows whose code that is."
        return Responsible("unknown", (why,))
    return Responsible("torch", (f"The failure is in {fr.show_frame(kept[0])}.",))


def repository_for(verdict: Verdict) -> str:
    """Return the repository in which ``verdict`` can be filed; empty if it should not be filed."""
    return "" if why_not_filed(verdict) else UPSTREAM[verdict.responsible]


def why_not_filed(verdict: Verdict) -> str:
    """Return why ``verdict`` should not be filed upstream, as a clause; empty if it can be
    filed.
    """
    if (why := kind_named(verdict.kind).not_filed) and verdict.responsible != "reprokit":
        return why
    if verdict.responsible in UPSTREAM:
        return ""
    if verdict.responsible == "user":
        return _in_own_code(verdict)
    at = f" at {verdict.responsible_place}" if verdict.responsible_place else ""
    return {
        "driver": "the GPU driver is responsible, not the compiler",
        "machine": "the machine is responsible, not the compiler",
        "reprokit": f"reprokit itself is responsible{at}",
    }.get(verdict.responsible, "nothing shows who is responsible")


def _in_own_code(verdict: Verdict) -> str:
    place = verdict.responsible_place
    if "::" in place:
        return f"the failure is in the custom operator {place}, which is not torch's"
    return f"the failure is in {ownership.owner_in_words(place)}"
