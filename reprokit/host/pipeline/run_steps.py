"""The steps that run the target, or read what its runs left: what happened, and what a second run
says of it.
"""

from __future__ import annotations

import dataclasses
import errno
from pathlib import Path

from reprokit.core.judge import machine_limits
from reprokit.core.records.kinds import kind_named
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import TargetRefused
from reprokit.core.shared.errors import BadInput
from reprokit.host.experiments import compare_simulated, eager_vs_compiled, follow_up, kernel_checks
from reprokit.host.pipeline import own_kernel
from reprokit.host.pipeline.state import State
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, restore_run, run_directory, run_outcome, supervise
from reprokit.host.system import compiler_cache, files

BEFORE_COMPILE = frozenset({"build", "import"})
"""Phases of a factory target in which nothing was compiled yet."""
NO_ROOM = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
)


def run_target(state: State) -> State:
    """Run it; a place that cannot be written to is the user's to change."""
    request, path, calls = state.request, state.run_path, state.callbacks
    if compiler_cache.fix_headers():
        calls.say(
            "removed half a precompiled header of a killed g++: C++ builds took several times as"
            " long"
        )
    calls.say(f"running {request.target.words} in {path}")
    try:
        outcome = supervise.run_target_once(
            eager_vs_compiled.run_watched(request, path), path, calls.show, calls.echo, calls.say
        )
    except OSError as problem:
        if problem.errno in (errno.ENOEXEC, errno.E2BIG, errno.ENOENT):
            raise run_directory.NothingRan(
                f"cannot start {request.target.words}: {problem.strerror}; name a program that runs"
            ) from problem
        if problem.errno not in NO_ROOM:
            raise _over_limit(problem, request) from problem
        why = (
            f"cannot write in {path}: {problem.strerror}; free some space, or name another"
            " --output-dir"
        )
        raise BadInput(why) from problem
    except (RuntimeError, MemoryError) as problem:
        raise _over_limit(problem, request) from problem
    state = run_has_ended(state, outcome)
    refuse_bad_target(state.journals, path)
    return state


def _over_limit(problem: Exception, request: Request) -> Exception:
    """The exception for a run that cannot begin or be watched; only the user can raise a limit."""
    spent = machine_limits.limit_in(problem)
    return (
        BadInput(f"cannot run {request.target.words}: {spent}; raise that limit")
        if spent
        else problem
    )


def run_has_ended(state: State, outcome: run_outcome.RunOutcome) -> State:
    """What is known of a run without reading what it left: at least how it ended."""
    bare = Observation(exit_status=outcome.exit_status, is_command=state.is_command)
    journals = observation_reader.read_journals(state.run_path)
    return dataclasses.replace(state, outcome=outcome, journals=journals, seen=bare).lacks_all(
        outcome.missing
    )


def refuse_bad_target(journals: observation_reader.Journals, run_path: Path) -> None:
    """A target that cannot be built is the user's to change: one line, and the full text stays in
    the run directory.
    """
    told = journals.last(TargetRefused)
    if message := told.message:
        if told.has_run is False:
            raise run_directory.NothingRan(message)
        raise BadInput(
            f"{message} (all of its output:"
            f" {run_path / run_names.LOGS_FOLDER / run_names.STDERR_FILE})"
        )
    if not journals.by_pid:
        said = (
            files.read_tail(run_path / run_names.LOGS_FOLDER / run_names.STDERR_FILE, 4_000)
            .strip()
            .splitlines()
        )
        spec = restore_run.read_run(run_path)
        if (
            spec.get("target", {}).get("kind") != "command"
            and spec.get("exit_status") not in (0, None)
            and int(spec["exit_status"]) > 0
        ):
            raise BadInput(
                f"{spec.get('python')} cannot run reprokit's agent:"
                f" {said[-1] if said else 'it said nothing'}; it needs Python 3.10 or newer and"
                " torch 2.9 or newer"
            )


def read_evidence(state: State) -> State:
    """Read what the run left into one observation."""
    seen = observation_reader.read_observation_of(
        state.request, state.ended, state.run_path, state.journals
    )
    return dataclasses.replace(state, seen=seen)


def read_problems(state: State) -> State:
    """Read what the instrumentation could not do."""
    return state.lacks_all(
        observation_reader.missing_of(state.journals, state.run_path, state.request)
    )


def may_hide_more(state: State) -> bool:
    """The run ended well, as far as is known: it may still have given wrong results."""
    return state.has_run and state.verdict.kind == "ok"


def compare_with_eager(state: State) -> State:
    """Compare its results with those of runs without torch.compile."""
    state.callbacks.say("comparing its results with eager's")
    missing: list[Missing] = []
    seen = eager_vs_compiled.compare_with_eager(
        state.request, state.seen, state.run_path, missing, state.callbacks.show
    )
    return dataclasses.replace(state, seen=seen).lacks_all(missing)


def compile_kernels(state: State) -> State:
    """Compile the Triton kernels that were generated for a simulated GPU."""
    state.callbacks.say("compiling the Triton kernels that it generated")
    request, show = state.request, state.callbacks.show_status
    seen = kernel_checks.check_kernels(
        state.seen, state.journals, state.run_path, request.python, request.kernels, show
    )
    return dataclasses.replace(state, seen=seen)


def isolate_kernel(state: State) -> State:
    """Take a program that needs Triton alone as one kernel."""
    return dataclasses.replace(
        state,
        seen=own_kernel.isolate_own_kernel(
            state.request, state.seen, state.journals, state.run_path
        ),
    )


def simulate_beside(state: State) -> State:
    """Compile for a simulation of the GPU that is here, too."""
    state.callbacks.say("compiling for a simulated GPU too")
    seen = compare_simulated.compare_with_simulation(
        state.request, state.seen, state.verdict, state.run_path, state.callbacks.show
    )
    return dataclasses.replace(state, seen=seen)


def wants_eager(state: State) -> bool:
    """Whether only a run without torch.compile can tell whose fault it is. A command is run only
    once.
    """
    if state.is_command or not state.has_run:
        return False
    return (
        kind_named(state.verdict.kind).is_confirmed_in_eager
        and state.verdict.phase not in BEFORE_COMPILE
    )


def confirm_in_eager(state: State) -> State:
    """Run the target without torch.compile."""
    state.callbacks.say(f"{state.verdict.kind}; running once more without torch.compile")
    seen = follow_up.check_eager(state.request, state.seen, state.run_path, state.callbacks.show)
    return dataclasses.replace(state, seen=seen)


def follow_up_hang(state: State) -> State:
    """Ask in shorter runs what a hang left open."""
    state.callbacks.say("asking what is still open, in shorter runs")
    answers = follow_up.ask_follow_ups(
        state.request, state.verdict, state.ended, state.run_path, state.callbacks.show
    )
    return dataclasses.replace(state, seen=dataclasses.replace(state.seen, answers=answers))
