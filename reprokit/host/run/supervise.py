"""Run a target once in a child process, with instrumentation and a deadline."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from reprokit.core.records import stalls
from reprokit.core.records.observation import Missing
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.request import run_request
from reprokit.host.request.run_request import Request
from reprokit.host.run import end_program, launch, output, stack_sources
from reprokit.host.run.restore_run import read_run_file
from reprokit.host.run.run_outcome import RunOutcome, outcome_to_json
from reprokit.host.system import (
    deletion,
    files,
    guardian_client,
    host_log,
    interrupts,
    process_tree,
)
from reprokit.host.watch import oom_killer
from reprokit.host.watch.hang_evidence import HangStacks
from reprokit.host.watch.watchdog import RunProgress, Watchdog

POLL_S = 0.05
DRAIN_S = 2.0
"""Seconds to wait for the rest of the output after the end of the target."""


Show = Callable[[RunProgress], None]
Say = Callable[[str], None]


def run_target_once(
    request: Request,
    run_path: Path,
    show: Show | None = None,
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None = None,
    say: Say = lambda text: None,
) -> RunOutcome:
    """Run the target to its end, its deadline or an interrupt; then end all its processes.

    ``run_path`` must have the folders of a run directory. ``echo`` receives the stdout and stderr
    of the target while it runs, in addition to the copies in ``logs/``. ``say`` receives messages
    about the run.
    """
    run_id = uuid.uuid4().hex
    with contextlib.ExitStack() as last, contextlib.ExitStack() as stack:
        agent = stack.enter_context(
            launch.copied_agent(run_path, launch.agent_parts_of_request(request))
        )
        argv = launch.target_command(request, run_path, agent)
        fields = {
            **run_request.request_to_json(request),
            "argv": argv,
            "started": time.time(),
            "run_id": run_id,
        }
        # before the start, because a run directory can be packed once it has this file
        files.write_json(run_path / run_names.RUN_FILE, fields)
        environ, missing = launch.target_environment(request, run_path, agent, run_id)
        # The cache of the compiler can have hundreds of megabytes, and adds nothing to the trace.
        stack.callback(deletion.delete_path, run_path / run_names.CACHE_FOLDER, inside=run_path)
        stack.callback(stack_sources.keep_lines, run_path)  # before their files are deleted

        def start() -> guardian_client.GuardedProcess:
            is_command = request.target.kind == "command"
            child = guardian_client.start_guarded(
                argv,
                environ,
                request.cwd,
                run_id,
                None if is_command else subprocess.DEVNULL,
                (agent, run_path / run_names.CACHE_FOLDER),
                takes_inherited=is_command,
            )
            # until it is dismissed, the guardian deletes the folders if reprokit is killed
            last.callback(child.dismiss)
            host_log.LOGGER.info("started process %s: %s", child.pid, shlex.join(argv))
            return child

        outcome = _execute(request, run_path, start, missing, show, echo, say)
    ending = outcome_to_json(outcome)
    host_log.LOGGER.info("the run ended: %s", ending)
    ending["seconds_to_stacks"] = outcome.stacks.seconds_to_stacks
    ending["seconds_to_verdict"] = outcome.stacks.seconds
    with host_log.suppress(OSError):
        files.write_json(run_path / run_names.RUN_FILE, {**fields, **ending})
    return outcome


def _execute(
    request: Request,
    run_path: Path,
    start: Callable[[], guardian_client.GuardedProcess],
    missing: list[Missing],
    show: Show | None,
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None,
    say: Say,
) -> RunOutcome:
    end, dumped = "", HangStacks()
    ended: float | None = None
    oom_before, started = oom_killer.count_oom_kills(), time.time()
    own_before = sum(process_tree.own_cpu_seconds())
    child = start()
    try:
        _update_run_file(run_path, main_pid=child.pid, started=started)
        pumps = output.pump_streams(child.streams, run_path / run_names.LOGS_FOLDER, echo)
        limit = request.quiet_limit_s
        watchdog = Watchdog(
            run_path,
            child.pid,
            limit,
            request.line_repeats,
            lambda: max(pump.last_output for pump in pumps),
            request.look_every_s,
            request.stall_s,
        )
    except BaseException:
        # without a watchdog, for example because of a limit on threads, the program must not go on
        end_program.kill_and_reap(child)
        raise
    began, pauses = time.monotonic(), end_program.Pauses(child)
    try:
        while not end:
            try:
                with pauses, interrupts.allowed():
                    end = _wait(
                        child.pid,
                        lambda: time.monotonic() - began - pauses.seconds,
                        request,
                        watchdog,
                        show,
                    )
            except KeyboardInterrupt:
                end = "interrupted"
            ended = time.time()
            if end == "ended":
                break
            if end == "stalled" and not _is_to_end(request, watchdog, run_path, say):
                end = ""
                continue
            # in case reprokit is killed before the end
            _update_run_file(run_path, end=end, quiet_s=round(watchdog.quiet_s, 3))
            if end == "interrupted":
                dumped = _forward_signal(child, request, watchdog, say)
                break
            # Ctrl-C ends the dump and the wait, but not the clean-up below
            with host_log.suppress(KeyboardInterrupt), interrupts.allowed():
                taken = (
                    watchdog.gather_final_evidence()
                    if end == "deadline"
                    else watchdog.gather_stall_evidence()
                )
                end, dumped = (end, taken) if taken is not None else ("", dumped)
                if not end:
                    _update_run_file(run_path, end="")
                elif end_program.handles_sigterm(dumped.evidence, child.pid):
                    end_program.end_with_signal(child, signal.SIGTERM, request.grace_s, say)
        if end != "ended" and not dumped.dumps:
            dumped = watchdog.dumps_so_far()
    finally:
        # before the target is reaped, because its CPU time would then count for this process
        own_cpu_s = sum(process_tree.own_cpu_seconds()) - own_before
        is_own_end = process_tree.has_ended(child.pid)
        with interrupts.blocked():
            left = end_program.kill_and_reap(child)
        for pump in pumps:
            pump.join(DRAIN_S)
        watchdog.close()
    ended = ended or time.time()
    missing += [Missing("stacks", p) for p in dumped.problems]
    if left.stubborn:
        pids = ", ".join(map(str, left.stubborn))
        why = f"SIGKILL did not end these processes, which wait in the kernel (state D): {pids}"
        missing.append(Missing("clean end", why))
    status, usage = left.status, left.usage
    if end != "ended" and not (end == "interrupted" and is_own_end and (status or 0) >= 0):
        status = None  # reprokit ended it
    samples = watchdog.watch.samples
    return RunOutcome(
        exit_status=status,
        is_timed_out=end in ("deadline", "stalled"),
        is_stalled=end == "stalled",
        is_interrupted=end == "interrupted",
        quiet_s=round(watchdog.quiet_s, 3),
        last_progress=watchdog.last_progress,
        seconds=round(ended - started, 3),
        cpu_s=round(
            max(usage.ru_utime + usage.ru_stime if usage else 0.0, watchdog.watch.cpu_s), 3
        ),
        cpu_by_pid={**watchdog.watch.cpu_by_pid, str(child.pid): left.root_cpu_s},
        peak_rss_bytes=max(samples.peak_rss_bytes, usage.ru_maxrss * 1024 if usage else 0),
        started=started,
        ended=ended,
        main_pid=child.pid,
        stacks=dumped,
        watch_cpu_s=round(own_cpu_s, 3),
        last_output=max(pump.last_output for pump in pumps),
        oom_evidence=oom_killer.describe_oom_kill(oom_before, status, samples),
        missing=tuple(missing),
        stalls=tuple(watchdog.stalls),
        still_from=dumped.still_from,
    )


def _forward_signal(
    child: guardian_client.GuardedProcess, request: Request, watchdog: Watchdog, say: Say
) -> HangStacks:
    """Forward the signal that arrived to the program, after a brief dump of its stacks.

    A second Ctrl-C kills the program at once. A different second signal only ends the dump:
    ``timeout`` of coreutils sends SIGTERM twice, and a preempted job may get it again.
    """
    number, dumped = interrupts.last, HangStacks()
    try:
        with interrupts.allowed():
            dumped = watchdog.gather_final_evidence(is_brief=True)
    except KeyboardInterrupt:
        if interrupts.last == signal.SIGINT:
            say("Ctrl-C again: killing the program")
            return dumped
    with host_log.suppress(KeyboardInterrupt):
        end_program.end_with_signal(child, number, request.grace_s, say)
    return dumped


def _is_to_end(request: Request, watchdog: Watchdog, run_path: Path, say: Say) -> bool:
    """Examine a stall. Return whether it ends the run; otherwise report it."""
    with interrupts.blocked():  # an interrupt is handled in the loop that waits for the run
        stall = watchdog.examine_stall()
    if stall is None:
        return False
    if stalls.ends_program(stall, request.on_stall, request.target.kind == "command"):
        return True
    if watchdog.record_stall(stall):
        _update_run_file(run_path, stalls=to_json(watchdog.stalls))
        goes_on = "the program goes on (--on-stall end ends it)"
        say(
            f"{stall.summary}; {'this is not a hang, and ' * (stall.state == stalls.IDLE)}{goes_on}"
        )
        for row in stall.stack:
            say(f"    {row}")
    return False


def _update_run_file(run_path: Path, **facts: Any) -> None:
    """Add ``facts`` to ``run.json``; a full disk must not end the run."""
    with host_log.suppress(OSError):
        files.write_json(run_path / run_names.RUN_FILE, {**read_run_file(run_path), **facts})


def _wait(
    pid: int,
    elapsed_s: Callable[[], float],
    request: Request,
    watchdog: Watchdog,
    show: Show | None,
) -> str:
    """Wait for the end of the run, and return ``ended``, ``deadline`` or ``stalled``.

    ``elapsed_s`` returns the seconds since its start, without pauses. The program is not reaped, so
    that no other process gets its pid.
    """
    while not process_tree.has_ended(pid):
        interrupts.raise_if_interrupted()
        watchdog.check_progress()
        elapsed = elapsed_s()
        if request.deadline_s is not None and elapsed >= request.deadline_s:
            return "deadline"
        if watchdog.is_stalled:
            return "stalled"
        if show:
            show(watchdog.run_progress(elapsed, request.deadline_s or 0.0))
        time.sleep(POLL_S)
    return "ended"
