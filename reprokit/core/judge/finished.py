"""The verdict on a run that succeeded: it reports what was compiled, how far, and whether it was
executed.
"""

from __future__ import annotations

from reprokit.core.judge import silent_failures
from reprokit.core.judge.responsible import simulation_gaps
from reprokit.core.judge.stacks.location import as_sentence
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import events
from reprokit.core.shared.source import entry_programs

NOTHING_COMPILED = "no graph was recorded"


def judge_finished(seen: Observation) -> Verdict | None:
    """Return the verdict on a run without a failure: what was compiled, and what was executed."""
    if seen.exit_status != 0 or not (seen.is_command or seen.has_finished):
        return None
    notes = silent_failures.notes_on_ok(seen)
    if seen.entry == entry_programs.EXPORT and not seen.graphs:
        return Verdict("ok", None, None, "The target finished; its model was exported.", notes)
    if events.DYNAMO_GRAPHS in seen.not_recorded:
        why = (
            "The target finished. Whether anything in it was compiled is not known, because its"
            " torch lacks the function that reprokit hooks to record graphs."
        )
        return Verdict("ok", None, None, why, notes)
    if not any(g.is_entered for g in seen.graphs):
        executed = (
            "compiled or executed: the tensors are fake" if seen.has_fake_tensors else "compiled"
        )
        why = f"The target finished, and nothing in it was {executed}."
        return Verdict("ok", None, None, why, (NOTHING_COMPILED, *notes))
    why = seen.growth["says"] if seen.growth else _compiled(seen)
    return Verdict("ok", None, None, as_sentence(why), notes)


def _compiled(seen: Observation) -> str:
    """Describe what was compiled, how far, and whether it was executed."""
    graphs = [g for g in seen.graphs if g.is_entered]
    by_rank = {g.rank for g in graphs if g.rank}
    on_each = f" on {len(by_rank)} ranks" if len(by_rank) > 1 else ""
    many = f"{len(graphs)} graph{'s were' if len(graphs) > 1 else ' was'}"
    if not seen.has_fake_tensors:
        return f"The target finished; {many} compiled{on_each}"
    has_code = any(g.level == "aten" for g in seen.graphs)
    done = (
        "compiled to the end of code generation"
        if has_code
        else "traced, and no code was generated"
    )
    gpu = simulation_gaps.simulated_gpu_of(seen.simulated)
    device = f" for a simulated {gpu}" if gpu else ""
    kernels = ""
    if seen.kernels_compiled:
        kernels = (
            f"; {seen.kernels_compiled} of {seen.kernels} Triton kernels were compiled, each alone"
        )
    why = "the GPU is simulated" if gpu else "the weights are fake"
    return f"{many} {done}{device}{on_each}{kernels}; nothing was executed because {why}"
