"""Attach to a running process: observe it, judge it, and write a pack."""

from __future__ import annotations

import ast
import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from reprokit.core.judge.stacks import main_process, phases
from reprokit.core.judge.stacks.location import plural
from reprokit.core.records.finding import Verdict
from reprokit.core.records.process_state import TaskState, read_tasks
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.attach import access, prepared, running_program
from reprokit.host.attach.inside import run_inside
from reprokit.host.attach.inside.injection import CannotRunInside
from reprokit.host.attach.observe import ProcessObserver
from reprokit.host.attach.running_program import RunningProgram
from reprokit.host.pipeline import pipeline, run_steps
from reprokit.host.pipeline.capture_result import CaptureResult
from reprokit.host.pipeline.state import Callbacks, State, StudyTools
from reprokit.host.pipeline.step_runner import follow_steps, judge_state
from reprokit.host.request import run_request
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import Target
from reprokit.host.run import run_directory
from reprokit.host.run.run_outcome import RunOutcome, outcome_to_json
from reprokit.host.system import files, host_log, interrupts, process_tree
from reprokit.host.watch import stacks

POLL_S = 0.1
MAX_LOOPS = 8
"""Processes whose tasks are read."""
MAX_BYTES = 16 << 20
TASKS_TIMEOUT_S = 2.0
"""A loop that runs a callback for longer is not at rest."""
GRAPHS_TIMEOUT_S = 10.0
"""The main thread of a process runs a pending call within milliseconds, if it runs Python."""


@dataclass(frozen=True)
class AttachOptions:
    """What the user asks of an attachment."""

    stall_s: float = 30.0
    """No progress for this long is a hang."""
    stalled_s: float = 0.0
    """For this long the process had not advanced when the observation began."""
    ports: tuple[int, ...] = ()
    """TCP ports on which the process answers every request."""
    has_native_frames: bool = False
    """Read native frames too, which stops the process for about 0.2 s."""
    records_graphs: bool = False
    """Run code inside the process that writes the graphs which it compiles, and reduce them."""
    records_tasks: bool = False
    """Run code inside the process that writes its tasks of asyncio."""
    observe_s: float = 0.0
    """Observe for this long in any case; 0 for as long as the verdict may change."""
    budget_s: float = Request.budget_s
    """Wall-clock seconds for the reduction of a recorded graph."""
    ends_process: bool = False
    """End the process after its pack is written."""
    grace_s: float = 10.0
    """Seconds between SIGTERM and SIGKILL for a process that is to end."""


@dataclass(frozen=True)
class Attached:
    """The result of an attachment."""

    captured: CaptureResult
    program: RunningProgram
    first_answer_s: float
    """Seconds from the start of reprokit to its first answer."""
    has_ended_it: bool = False


def attach_to_process(
    pid: int,
    output: Path | None,
    options: AttachOptions,
    callbacks: Callbacks,
) -> Attached:
    """Observe the process ``pid`` and its descendants, and write a pack.

    Raises:
        BadInput: the process cannot be observed at all, or the pack cannot be written.
    """
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess as problem:
        raise BadInput(f"process {pid} has ended") from problem
    if options.ends_process:
        _check_may_end(pid)
    program = running_program.describe_process(pid)
    why_no_stacks = access.check_access(pid)
    # the root may be a shell or a launcher
    pythons = [p.pid for p in process_tree.family_of(pid) if process_tree.is_python(p.pid)]
    interpreter = running_program.describe_process(next(iter(pythons), pid))
    refused = running_program.why_not_run(interpreter)
    request = Request(
        Target("command", command=program.argv or (f"process-{pid}",)),
        python=Request.python if refused else interpreter.python,
        python_refused=refused,
        deadline_s=None,
        stall_s=options.stall_s,
        minimizes=options.records_graphs,
        budget_s=options.budget_s,
        ablation_steps="few" if options.records_graphs else "none",
        compares=False,
        escalate=False,
        attached_pid=pid,
        quiet_before_s=options.stalled_s,
    )
    with interrupts.deferred():
        run_dir = _create_directory(output, request.target.label, program)
        state = State(
            request,
            run_dir,
            callbacks,
            StudyTools(),
            may_run=False,
            may_study=options.records_graphs and not refused,
        )
        try:
            with host_log.log_to(run_dir.path):
                can_signal = bool(why_no_stacks) and _writes_stacks(pid)
                if why_no_stacks:
                    callbacks.say(why_no_stacks)
                if why_no_stacks and not can_signal:
                    state = state.with_missing("stacks", why_no_stacks)
                state, first_answer_s = _observe(state, program, options, can_signal)
                captured = pipeline.capture_result_of(follow_steps(state, pipeline.STEPS))
                ended = options.ends_process and _end_process(
                    process, options.grace_s, callbacks.say
                )
                return Attached(captured, program, first_answer_s, ended)
        finally:
            state.study.close()
            run_dir.release_lock()


def _create_directory(
    output: Path | None, label: str, program: RunningProgram
) -> run_directory.RunDir:
    """Create the run directory, outside of the working directory of the process unless the user
    names it.
    """
    if output is None and running_program.works_below(program.pid, Path.cwd()):
        name = f"{label}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        output = Path(tempfile.mkdtemp(prefix="reprokit-out-")) / name
    return run_directory.create_run_directory(output, label)


def _writes_stacks(root_pid: int) -> bool:
    """Return whether a process of the tree writes its stacks on a signal."""
    return any(prepared.writes_stacks(p.pid) for p in process_tree.family_of(root_pid))


def _observe(
    state: State, program: RunningProgram, options: AttachOptions, may_signal: bool
) -> tuple[State, float]:
    """Observe the process, report the first answer, and observe further while nothing moves.

    Return the state, and the seconds from the start of reprokit to the first answer.
    """
    fields = {
        **run_request.request_to_json(state.request),
        "argv": list(program.argv) or [str(program.pid)],
        "started": time.time(),
        "main_pid": program.pid,
    }
    files.write_json(state.run_path / run_names.RUN_FILE, fields)
    does = []
    if options.has_native_frames:
        does.append("reading their native frames stops one for about 0.2 s")
    if may_signal:
        does.append("each that called reprokit.watch() is asked for them with a signal")
    if any(prepared.takes_programs(p.pid) for p in process_tree.family_of(program.pid)):
        does.append("each that called reprokit.watch() is asked for its tasks with a signal")
    elif options.records_tasks:
        does.append(f"for its tasks, {run_inside.describe_way(program.pid)} that writes them")
    if options.records_graphs:
        does.append(f"for its graphs, {run_inside.describe_way(program.pid)} that writes them")
    effect = "; ".join(does) or "nothing is stopped, signalled or written there"
    state.callbacks.say(
        f"reading the stacks of {process_tree.describe_family(program.pid)} three times, from"
        f" outside; {effect}; the files are in {state.run_path}"
    )
    with contextlib.closing(
        ProcessObserver(state.request, state.run_path, options.ports, may_signal=may_signal)
    ) as observer:
        outcome = observer.look()
        state, tasks = _record_tasks(state, observer, options.records_tasks)
        outcome = observer.add_tasks(tasks) if tasks else outcome
        first = _judge(state, outcome)
        first_answer_s = round(time.time() - psutil.Process().create_time(), 2)
        for line in _first_answer(first, outcome.seconds):
            state.callbacks.say(line)
        if options.records_graphs:
            state = _record_graphs(state, program.pid)
        # a compile that advances without end is slow only if it goes on
        is_slow = bool(first.phase in phases.COMPILE_PHASES and options.records_graphs)
        is_open = first.kind == "unknown" and first.cause != "ended"
        goes_on = is_slow or bool(options.observe_s)
        limit_s = options.observe_s or observer.limit_s
        if options.observe_s or ((is_open or is_slow) and outcome.quiet_s < options.stall_s):
            until = "for" if goes_on else "until it advances, or for"
            state.callbacks.say(f"observing it {until} {limit_s:g} s (Ctrl-C ends this)")
            outcome = observer.observe_longer(state.callbacks.show_status, limit_s, not goes_on)
        if options.has_native_frames:
            outcome = observer.add_native_frames()
    with host_log.suppress(OSError):
        files.write_json(
            state.run_path / run_names.RUN_FILE, {**fields, **outcome_to_json(outcome)}
        )
    return run_steps.state_after_run(state, outcome), first_answer_s


def _record_tasks(
    state: State, observer: ProcessObserver, may_run: bool
) -> tuple[State, tuple[TaskState, ...]]:
    """Let the processes with an event loop write their tasks, if they are prepared for it or the
    user allows it.
    """
    pids = [p for p in observer.pids_with_tasks if may_run or prepared.takes_programs(p)]
    for pid in pids[:MAX_LOOPS]:
        try:
            run_inside.record_inside(
                pid,
                state.run_path,
                TASKS_TIMEOUT_S,
                run_inside.TASKS,
                ends_wait=observer.waits_in_selector(pid),
            )
        except CannotRunInside as problem:
            state.callbacks.say(f"no tasks of process {pid}: {problem}")
            state = state.with_missing("tasks", str(problem))
    rows: list[dict[str, Any]] = []
    for line in files.read_text(state.run_path / run_names.TASKS_FILE, MAX_BYTES).splitlines():
        with host_log.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            rows.append(ast.literal_eval(line))
    return state, read_tasks(row for row in rows if isinstance(row, dict))


def _record_graphs(state: State, pid: int) -> State:
    """Let the main process write its graphs; without graphs, go on with the stacks."""
    main = main_process.find_by_stacks(stacks.read_dumps(state.run_path), pid).pid
    try:
        count = run_inside.record_inside(main, state.run_path, GRAPHS_TIMEOUT_S)
    except CannotRunInside as problem:
        state.callbacks.say(f"no graphs: {problem}")
        return state.with_missing("graphs", str(problem))
    if not count:
        return state.with_missing("graphs", f"process {main} compiles no graph")
    state.callbacks.say(
        f"process {main} compiles {plural(count, 'graph')}, and wrote them to the run directory"
    )
    return state


def _judge(state: State, outcome: RunOutcome) -> Verdict:
    state = run_steps.read_evidence(run_steps.state_after_run(state, outcome))
    return judge_state(state).verdict


def _first_answer(verdict: Verdict, seconds: float) -> Iterator[str]:
    yield f"after {seconds:.1f} s: {verdict.reason}"
    for row in verdict.path[:6]:
        yield f"    {row}"


def _check_may_end(pid: int) -> None:
    """Raise BadInput if this user may not send a signal to the process."""
    try:
        os.kill(pid, 0)
    except PermissionError as problem:
        raise BadInput(f"--then end: this user may not end process {pid}") from problem
    except OSError as problem:
        host_log.log_ignored(problem)


def _end_process(process: psutil.Process, grace_s: float, say: Callable[[str], None]) -> bool:
    """Send SIGTERM to the process, and after ``grace_s`` SIGKILL to it and all below it. Return
    whether this has ended it. A process that got its pid later is left alone.
    """
    if not _is_running(process):
        say(f"process {process.pid} has ended by itself")
        return False
    family = process_tree.family_of(process.pid)
    say(f"sending SIGTERM to process {process.pid}; after {grace_s:g} s it is killed")
    with host_log.suppress(psutil.Error):
        process.terminate()
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(map(_is_running, family)):
        time.sleep(POLL_S)
    for victim in {*family, *(process_tree.family_of(process.pid) if _is_running(process) else ())}:
        with host_log.suppress(psutil.Error):
            victim.kill()
    time.sleep(POLL_S)
    return not _is_running(process)


def _is_running(process: psutil.Process) -> bool:
    return process.is_running() and not process_tree.has_ended(process.pid)
