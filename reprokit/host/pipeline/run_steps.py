"""The steps that run the target, and the steps that read the files of its runs."""

from __future__ import annotations

import dataclasses
import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprokit.core.experiments.remedies import advice
from reprokit.core.judge import machine_limits
from reprokit.core.judge.stacks import location, phases
from reprokit.core.records import crash_sites
from reprokit.core.records.crash_sites import CrashSite
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import TargetRefused
from reprokit.core.shared.errors import BadInput
from reprokit.host.experiments import compare_memory as memory_runs
from reprokit.host.experiments import (
    compare_simulated,
    compare_speed,
    eager_vs_compiled,
    follow_up,
    kernel_checks,
    run_cache_stages,
    sanitized_run,
)
from reprokit.host.experiments import sample_calls as calls
from reprokit.host.pipeline import own_kernel
from reprokit.host.pipeline.state import State
from reprokit.host.probe.candidate import UNCOMPILED_ROLES
from reprokit.host.request.run_request import Request
from reprokit.host.run import (
    missing_evidence,
    observation_reader,
    restore_run,
    run_directory,
    run_outcome,
    supervise,
)
from reprokit.host.system import compiler_cache, files, interrupts

BEFORE_COMPILE = frozenset({"build", "import"})
"""Phases of a factory target before the first compile."""
STUCK_S = 20.0
"""A program that made no progress for this long before Ctrl-C may be stuck."""
NO_ROOM = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
)


def run_target(state: State) -> State:
    """Run the target.

    Raises:
        BadInput: the user must change the target, the folder or a limit of the machine.
        NothingRan: the program cannot start.
    """
    request, path, calls = state.request, state.run_path, state.callbacks
    if compiler_cache.delete_partial_headers():
        calls.say(
            "removed an incomplete precompiled header of a killed g++, which made C++ builds"
            " several times slower"
        )
    calls.say(f"running {request.target.words}; its files are in {path}")
    try:
        first = run_cache_stages.request_of_first_run(request, path)
        _share_compiler_checks(first, path)
        outcome = supervise.run_target_once(
            eager_vs_compiled.request_with_results(first, path),
            path,
            calls.show,
            calls.echo,
            calls.say,
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
    state = state_after_run(state, outcome)
    # a signal that ends the construction of a target does not make it a bad target
    if not outcome.is_interrupted:
        refuse_bad_target(state.journals, path)
    return state


def _share_compiler_checks(request: Request, path: Path) -> None:
    """Copy what an earlier run asked the C++ compiler about this machine into the empty cache of
    the run: no graph, and no code of a target.
    """
    name = "TORCHINDUCTOR_CACHE_DIR"
    if name in os.environ or name in request.variables:
        return
    python = request.python
    if request.target.kind == "command":
        program = shutil.which(request.target.command[0]) or ""
        if not Path(program).name.startswith("python"):
            return
        python = program
    kept = compiler_cache.kept_cache_folder(python)
    compiler_cache.copy_cache(kept, path / run_names.CACHE_FOLDER)


def _over_limit(problem: Exception, request: Request) -> Exception:
    """Return BadInput where a limit of the machine stopped the run, and ``problem`` otherwise."""
    limit = machine_limits.limit_in(problem)
    return (
        BadInput(f"cannot run {request.target.words}: {limit}; raise that limit")
        if limit
        else problem
    )


def state_after_run(state: State, outcome: run_outcome.RunOutcome) -> State:
    """Return the state with the end and the journals of the run; its other files are read later."""
    bare = Observation(exit_status=outcome.exit_status, is_command=state.is_command)
    journals = observation_reader.read_journals(state.run_path)
    return dataclasses.replace(
        state, outcome=outcome, journals=journals, seen=bare
    ).with_all_missing(outcome.missing)


def refuse_bad_target(journals: observation_reader.Journals, run_path: Path) -> None:
    """Raise BadInput, in one line, for a target that cannot be built.

    The full text stays in the run directory.
    """
    refusal = journals.last_event_of_type(TargetRefused)
    if message := refusal.message:
        if refusal.has_run is False:
            raise run_directory.NothingRan(message)
        raise BadInput(
            f"{message} (all of its output:"
            f" {run_path / run_names.LOGS_FOLDER / run_names.STDERR_FILE})"
        )
    if not journals.by_pid:
        last_lines = (
            files.read_tail(run_path / run_names.LOGS_FOLDER / run_names.STDERR_FILE, 4_000)
            .strip()
            .splitlines()
        )
        run = restore_run.read_run_file(run_path)
        if (
            run.get("target", {}).get("kind") != "command"
            and run.get("exit_status") not in (0, None)
            and int(run["exit_status"]) > 0
        ):
            raise BadInput(
                f"{run.get('python')} cannot run reprokit:"
                f" {last_lines[-1] if last_lines else 'it wrote nothing'}; reprokit needs Python"
                " 3.10 or newer and torch 2.9 or newer"
            )


def read_evidence(state: State) -> State:
    """Read the files of the run into one observation."""
    seen = observation_reader.read_observation(
        state.request, state.ended, state.run_path, state.journals
    )
    return dataclasses.replace(state, seen=seen)


def read_problems(state: State) -> State:
    """Add to ``missing`` what the instrumentation could not do."""
    return state.with_all_missing(
        missing_evidence.find_missing(state.journals, state.run_path, state.request)
    )


def may_hide_more(state: State) -> bool:
    """Return True for a run without a known failure, whose results may still be wrong."""
    return state.has_run and state.verdict.kind == "ok"


def may_compare(state: State) -> bool:
    """Return True where wrong results are possible: nothing failed, or only the program's own code,
    which may check its results.
    """
    is_own_check = state.has_run and state.is_command and state.has_failed_by_itself
    return may_hide_more(state) or is_own_check


def compare_with_eager(state: State) -> State:
    """Compare the results of the run with those of runs without torch.compile."""
    state.callbacks.say("comparing its results with those of eager")
    missing: list[Missing] = []
    suspected = Verdict("wrong-result", None, None, "")

    def run_forked(role: str, overrides: Mapping[str, Any]) -> Observation:
        is_eager = role in UNCOMPILED_ROLES
        return state.study.run_target(state, suspected, is_eager, role, overrides)[1]

    seen = eager_vs_compiled.compare_with_eager(
        state.request,
        state.seen,
        state.run_path,
        missing,
        state.callbacks.show,
        run_forked if _may_fork(state) and not state.request.checks_caches else None,
    )
    return dataclasses.replace(state, seen=seen).with_all_missing(missing)


def may_call_again(state: State) -> bool:
    """Return True for a run that ended well, whatever torch regards as working in it."""
    return state.has_run and state.seen.exit_status == 0 and state.seen.has_finished


def sample_calls(state: State) -> State:
    """Call the target many times, and find what grows with each call."""
    if state.seen.has_fake_tensors:
        why = "the weights are fake, so nothing was executed"
        return state.with_missing(calls.WHAT, why)
    state.callbacks.say(f"calling it {state.request.calls} times, to see what grows")
    missing: list[Missing] = []
    seen = calls.sample_calls(
        state.request, state.seen, state.run_path, missing, state.callbacks.show
    )
    return dataclasses.replace(state, seen=seen).with_all_missing(missing)


def compare_speed_with_eager(state: State) -> State:
    """Time warm calls of the target, compiled and in eager."""
    if state.seen.has_fake_tensors:
        return state.with_missing(
            "comparison of speed", "the weights are fake: nothing is executed"
        )
    state.callbacks.say("timing warm calls, compiled and in eager")
    missing: list[Missing] = []
    seen = compare_speed.compare_speed(
        state.request, state.seen, state.run_path, missing, state.callbacks.show
    )
    return dataclasses.replace(state, seen=seen).with_all_missing(missing)


def compare_memory(state: State) -> State:
    """Compare the peak of its memory with that of a run without torch.compile."""
    state.callbacks.say("comparing its memory with that of eager")
    missing: list[Missing] = []
    seen = memory_runs.compare_memory(
        state.request, state.seen, state.run_path, missing, state.callbacks.show
    )
    return dataclasses.replace(state, seen=seen).with_all_missing(missing)


def compare_caches(state: State) -> State:
    """Run the target again with the caches of its first run."""
    if state.seen.has_fake_tensors:
        return state.with_missing("caches", "the weights are fake, so nothing was executed")
    state.callbacks.say("running it again with the caches of the first run")
    missing: list[Missing] = []
    seen = run_cache_stages.compare_caches(
        state.request, state.seen, state.journals, state.run_path, missing, state.callbacks.show
    )
    return dataclasses.replace(state, seen=seen).with_all_missing(missing)


def compile_kernels(state: State) -> State:
    """Compile the Triton kernels that were generated for a simulated GPU."""
    state.callbacks.say("compiling the Triton kernels that it generated")
    request, show = state.request, state.callbacks.show_status
    seen = kernel_checks.check_kernels(
        state.seen, state.journals, state.run_path, request.python, request.kernels, show
    )
    return dataclasses.replace(state, seen=seen)


def isolate_kernel(state: State) -> State:
    """Treat a command that compiles one kernel with Triton alone as that kernel."""
    return dataclasses.replace(
        state,
        seen=own_kernel.isolate_own_kernel(
            state.request, state.seen, state.journals, state.run_path
        ),
    )


def simulate_beside(state: State) -> State:
    """Compile also for a simulation of the GPU of this machine."""
    state.callbacks.say("compiling for a simulated GPU too")
    seen = compare_simulated.compare_with_simulation(
        state.request, state.seen, state.verdict, state.run_path, state.callbacks.show
    )
    return dataclasses.replace(state, seen=seen)


def wants_eager(state: State) -> bool:
    """Return True where a run without torch.compile can show whether the compiler is responsible.

    A command is run only once, so it has no such run.
    """
    if state.is_command or not state.has_run:
        return False
    return (
        kind_named(state.verdict.kind).is_confirmed_in_eager
        and state.verdict.phase not in BEFORE_COMPILE
    )


def confirm_in_eager(state: State) -> State:
    """Run the target without torch.compile."""
    state.callbacks.say(
        f"{state.verdict.kind}: running without torch.compile, to see whether it fails there too"
    )

    def run_forked() -> tuple[run_outcome.RunOutcome, Observation]:
        return state.study.run_target(state, state.verdict, is_eager=True)

    is_of_process = state.verdict.kind in ("hang", "oom")  # its time or memory decides
    seen = follow_up.check_eager(
        state.request,
        state.seen,
        state.run_path,
        state.callbacks.show,
        run_forked if _may_fork(state) and not is_of_process else None,
    )
    return dataclasses.replace(state, seen=seen)


def _may_fork(state: State) -> bool:
    """Return whether a factory target may run in a forked child of the server that studies its
    failure, because that server will start anyway.
    """
    return state.wants_study and not (state.is_command or state.request.tensor_parallel)


def follow_up_hang(state: State) -> State:
    """Run the target again, in short runs, to learn more about a hang."""
    state.callbacks.say("running it again, in shorter runs, to learn more about the hang")
    answers = follow_up.ask_follow_ups(
        state.request, state.verdict, state.ended, state.run_path, state.callbacks.show
    )
    return dataclasses.replace(state, seen=dataclasses.replace(state.seen, answers=answers))


def wants_crash_site(state: State) -> bool:
    """Return True for a crash in compiled code on this machine, where a second run is harmless or
    the user asked for it.
    """
    request, seen = state.request, state.seen
    is_real = request.gpu is None and not seen.has_fake_tensors
    is_one = is_real and not (seen.stage or seen.kernel or request.attached_pid or seen.ranks)
    is_harmless = not state.is_command or request.minimizes  # it runs a copy of a command
    may_rerun = is_harmless if request.escalate is None else request.escalate
    is_wanted = state.has_run and may_rerun and is_one
    return is_wanted and sanitized_run.may_be_compiled_code(state.verdict, seen)


def find_crash_site(state: State) -> State:
    """Run the target again with its C++ built with sanitizers; of a command, an isolated copy."""
    case, request = state.study.case_for(state), state.request
    again = not state.is_command or request.escalate
    if not again and (not case.source or case.isolation is None):
        because = f": {case.why_no_source}" if case.why_no_source else ""
        return state.with_missing("crash site", f"a command is run only once{because}")
    if state.seen.seconds > sanitized_run.MAX_FIRST_S:
        return state.with_missing("crash site", f"it took {state.seen.seconds:.0f} s to crash")
    state.callbacks.say("building its C++ with sanitizers, to find the operator that crashes")
    with interrupts.allowed():
        if again:
            site = sanitized_run.run_target(
                request, state.seen, state.run_path, state.callbacks.show
            )
        else:
            site = sanitized_run.run_program(
                case.source, case.isolation, case.python, case.signature, state.seen, state.run_path
            )
    if isinstance(site, CrashSite) and not again:
        site = dataclasses.replace(site, line=_line_in_original(site.line, case.source, request))
    if isinstance(site, str):
        return state.with_missing("crash site", site)
    called = location.called_kernel(state.verdict.work.get("kernel", ""))
    if not site.operator and site.place != crash_sites.GENERATED and "." in called:
        site = dataclasses.replace(site, operator=called.removeprefix("torch.ops."))
    return dataclasses.replace(state, seen=dataclasses.replace(state.seen, crash_site=site))


def _line_in_original(line: str, copy: str, request: Request) -> str:
    """Return ``FILE:LINE`` of the copy of a program as a line of the user's file, or of the copy in
    the pack where that was joined of several files.
    """
    _, _, number = line.rpartition(f"{run_names.REPRO_FILE}:")
    if not number.isdecimal():
        return line
    for word in request.target.command:
        script = Path(request.cwd or ".", word).absolute()
        if word.endswith(".py") and files.read_text(script).strip() == copy.strip():
            return f"{script}:{number}"
    return f"{run_names.CANDIDATE_FILE}:{number}"


def has_evidence(state: State) -> bool:
    """Return False if the run showed nothing that a pack could tell: torch was never imported where
    reprokit sees it, the interpreter has no torch, or the user interrupted a program that made
    progress outside the compiler.

    ``reprokit pack`` packs such a run too.
    """
    verdict = state.verdict
    if state.may_run and advice.missing_module(state.seen) == "torch":
        return verdict.kind != "error-in-eager"
    if not state.may_run or verdict.kind not in ("ok", "unknown"):
        return True
    if verdict.cause == "interrupted":
        is_at_work = verdict.phase in (*phases.COMPILE_PHASES, *BEFORE_COMPILE)
        return is_at_work or (state.seen.quiet_s or 0.0) >= STUCK_S
    return bool(state.journals.by_pid)
