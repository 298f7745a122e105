"""One instrumented execution of a target in a child process, under a deadline."""

from __future__ import annotations

import contextlib
import dataclasses
import resource
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
from reprokit.host.run import end_program, launch, output
from reprokit.host.run.restore_run import read_run
from reprokit.host.run.run_outcome import RunOutcome
from reprokit.host.system import deletion, files, guardian_client, interrupts, process_tree
from reprokit.host.watch import oom_killer
from reprokit.host.watch.hang_evidence import HangStacks
from reprokit.host.watch.watchdog import RunProgress, Watchdog

POLL_S = 0.05
DRAIN_S = 2.0
"""How long to wait for the rest of the output after the target's end."""


Show = Callable[[RunProgress], None]
Say = Callable[[str], None]


def run_target_once(
    request: Request,
    run_path: Path,
    show: Show | None = None,
    echo: tuple[IO[bytes] | None, IO[bytes] | None] | None = None,
    say: Say = lambda text: None,
) -> RunOutcome:
    """Run the target to its end, its deadline or an interrupt; afterwards its whole tree is gone.

    ``run_path`` must have the folders of a run directory. ``echo`` takes the target's stdout and
    stderr live, beside the copies in ``logs/``. ``say`` takes a line on what happens meanwhile.
    """
    run_id = uuid.uuid4().hex
    with contextlib.ExitStack() as last, contextlib.ExitStack() as stack:
        argv = launch.target_command(request, run_path)
        asked = {
            **run_request.request_to_json(request),
            "argv": argv,
            "started": time.time(),
            "run_id": run_id,
        }
        files.write_json(
            run_path / run_names.RUN_FILE, asked
        )  # first of all: with it, a run directory can be packed
        agent = stack.enter_context(launch.agent_folder(run_path, launch.parts_of(request)))
        environ, missing = launch.target_environment(request, run_path, agent, run_id)
        # The compiler's private cache can be hundreds of megabytes and proves nothing that the
        # trace does not.
        stack.callback(deletion.delete, run_path / run_names.CACHE_FOLDER, inside=run_path)

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
            last.callback(
                child.dismiss
            )  # it deletes the folders if reprokit is killed before it deletes them
            return child

        outcome = _execute(request, run_path, start, missing, show, echo, say)
    ending = {
        f.name: to_json(getattr(outcome, f.name))
        for f in dataclasses.fields(outcome)
        if f.name != "stacks"
    }
    ending["seconds_to_stacks"] = outcome.stacks.seconds_to_stacks
    ending["seconds_to_verdict"] = outcome.stacks.seconds
    with contextlib.suppress(OSError):
        files.write_json(run_path / run_names.RUN_FILE, {**asked, **ending})
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
    oom_before, started, own_before = oom_killer.oom_kills(), time.time(), _own_cpu_s()
    child = start()
    try:
        _tell(run_path, main_pid=child.pid, started=started)
        pumps = output.pump_streams(child.streams, run_path / run_names.LOGS_FOLDER, echo)
        limit = request.quiet_limit_s
        lookout = Watchdog(
            run_path,
            child.pid,
            limit,
            request.line_repeats,
            lambda: max(pump.last_output for pump in pumps),
            request.look_every_s,
            request.stall_s,
        )
    except (
        BaseException
    ):  # such as a limit on threads: the program is not watched, so it must not go on
        end_program.end_everything(child)
        raise
    began = time.monotonic()
    try:
        while not end:
            try:
                with interrupts.allowed():
                    end = _wait(child.pid, began, request, lookout, show)
            except KeyboardInterrupt:
                end = "interrupted"
            ended = time.time()
            if end == "ended":
                break
            if end == "stalled" and not _is_to_end(request, lookout, run_path, say):
                end = ""
                continue
            _tell(
                run_path, end=end, quiet_s=round(lookout.quiet_s, 3)
            )  # should we be killed before the end
            if end == "interrupted":
                dumped = _pass_on(child, request, lookout, say)
                break
            # Ctrl-C ends the dump and the waiting, never the clean-up below.
            with contextlib.suppress(KeyboardInterrupt), interrupts.allowed():
                taken = lookout.take() if end == "deadline" else lookout.conclude()
                end, dumped = (end, taken) if taken is not None else ("", dumped)
                if not end:
                    _tell(run_path, end="")
                elif end_program.can_answer(dumped.evidence, child.pid):
                    end_program.end_politely(child, signal.SIGTERM, request.grace_s, say)
        if end != "ended" and not dumped.dumps:
            dumped = lookout.so_far()
    finally:
        own_cpu_s = (
            _own_cpu_s() - own_before
        )  # before the target is reaped, whose seconds would count as ours
        is_own_end = process_tree.has_ended(child.pid)
        with interrupts.blocked():
            left = end_program.end_everything(child)
        for pump in pumps:
            pump.join(DRAIN_S)
        lookout.close()
    ended = ended or time.time()
    missing += [Missing("stacks", p) for p in dumped.problems]
    if left.stubborn:
        why = f"processes {left.stubborn} are in an uninterruptible wait and could not be ended"
        missing.append(Missing("clean end", why))
    status, usage = left.status, left.usage
    if end != "ended" and not (end == "interrupted" and is_own_end and (status or 0) >= 0):
        status = None  # the signal that ended it was ours
    samples = lookout.watch.samples
    return RunOutcome(
        exit_status=status,
        is_timed_out=end in ("deadline", "stalled"),
        is_stalled=end == "stalled",
        is_interrupted=end == "interrupted",
        quiet_s=round(lookout.quiet_s, 3),
        last_progress=lookout.last_progress,
        seconds=round(ended - started, 3),
        cpu_s=round(max(usage.ru_utime + usage.ru_stime if usage else 0.0, lookout.watch.cpu_s), 3),
        cpu_by_pid={**lookout.watch.cpu_by_pid, str(child.pid): left.root_cpu_s},
        peak_rss_bytes=max(samples.peak_rss_bytes, usage.ru_maxrss * 1024 if usage else 0),
        started=started,
        ended=ended,
        main_pid=child.pid,
        stacks=dumped,
        watch_cpu_s=round(own_cpu_s, 3),
        last_output=max(pump.last_output for pump in pumps),
        oom_evidence=oom_killer.oom_evidence(oom_before, status, samples),
        missing=tuple(missing),
        stalls=tuple(lookout.stalls),
        still_from=dumped.still_from,
    )


def _pass_on(
    child: guardian_client.GuardedProcess, request: Request, lookout: Watchdog, say: Say
) -> HangStacks:
    """Send the program the signal that arrived. A second Ctrl-C kills it at once; another signal
    only comes sooner.

    ``timeout`` of coreutils sends SIGTERM twice, and a preempted job may get it again.
    """
    number, dumped = interrupts.last, HangStacks()
    try:
        with interrupts.allowed():
            dumped = lookout.take(is_brief=True)
    except KeyboardInterrupt:
        if interrupts.last == signal.SIGINT:
            say("Ctrl-C again: killing the program")
            return dumped
    with contextlib.suppress(KeyboardInterrupt):
        end_program.end_politely(child, number, request.grace_s, say)
    return dumped


def _is_to_end(request: Request, lookout: Watchdog, run_path: Path, say: Say) -> bool:
    """Look at a stall, and end the run for it or report it."""
    with interrupts.blocked():  # an interrupt is raised where the run is waited for
        stall = lookout.examine()
    if stall is None:
        return False
    if stalls.ends_program(stall, request.on_stall, request.target.kind == "command"):
        return True
    if lookout.note(stall):
        _tell(run_path, stalls=to_json(lookout.stalls))
        goes_on = "the program goes on (--on-stall end ends it)"
        say(f"{stall.says}; {'this is not a hang, and ' * (stall.state == stalls.IDLE)}{goes_on}")
        for row in stall.stack:
            say(f"    {row}")
    return False


def _tell(run_path: Path, **facts: Any) -> None:
    """Add to ``run.json`` what is known so far; a full disk must not end the watching."""
    with contextlib.suppress(OSError):
        files.write_json(run_path / run_names.RUN_FILE, {**read_run(run_path), **facts})


def _own_cpu_s() -> float:
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(used.ru_utime + used.ru_stime for used in both)


def _wait(pid: int, began: float, request: Request, lookout: Watchdog, show: Show | None) -> str:
    """How it came to an end: ``ended``, ``deadline`` or ``stalled``. It is not reaped: its pid must
    stay its own.
    """
    while not process_tree.has_ended(pid):
        interrupts.raise_if_interrupted()
        lookout.tick()
        elapsed = time.monotonic() - began
        if request.deadline_s is not None and elapsed >= request.deadline_s:
            return "deadline"
        if lookout.is_stalled:
            return "stalled"
        if show:
            show(lookout.progress(elapsed))
        time.sleep(POLL_S)
    return "ended"
