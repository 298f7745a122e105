"""The stall clock counts the time without progress that the target was able to use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.judge.hangs.hang_causes import diagnose_hang
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.journal_reader import event_from_json
from reprokit.core.records.observation import Observation
from reprokit.core.records.stalls import INSIDE, Stall
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import Begin, End
from reprokit.core.shared.contract.journal_format import Now, encode_event, encode_now
from reprokit.host.run import observation_reader, run_directory
from reprokit.host.watch import (
    blocked_on,
    hang_evidence,
    proc_snapshot,
    sampler,
    stacks,
    watchdog,
)
from reprokit.host.watch.journal_tail import JournalFollower
from reprokit.host.watch.watchdog import MAX_TICK_S, Watchdog
from tests.support.processes import wait_until


@pytest.fixture
def run_path(tmp_path: Path) -> Path:
    run_directory.make_folders(tmp_path)
    return tmp_path


class Clock:
    """A clock that moves only on request; each tick takes a sample."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(watchdog.time, "monotonic", lambda: self.now)


def journal(run_path: Path, **event: Any) -> None:
    row = {"t": 0.0, "pid": os.getpid(), "tid": os.getpid(), **event}
    parsed = event_from_json(row)
    assert parsed is not None
    with (run_path / "journal" / f"{os.getpid()}.jsonl").open("ab") as file:
        file.write(encode_event(parsed))


def make_watchdog(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, served: float = 1.0, want: float = 0.0
) -> Watchdog:
    """Return a watchdog on this process with the given use of CPUs."""
    monkeypatch.setattr(sampler.Sampler, "received_cpu_share", lambda self: served)
    monkeypatch.setattr(sampler.Sampler, "requested_cpu_share", lambda self, pid: want)
    monkeypatch.setattr(watchdog.Watchdog, "_progress_in_stacks", lambda self, follower: [])
    return Watchdog(run_path, os.getpid(), 60.0, 100, lambda: 0.0)


def advance(watcher: Watchdog, clock: Clock, seconds: float) -> None:
    clock.now += seconds
    watcher.check_progress()


def test_events_and_lines_are_progress_and_silence_is_not(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quiet seconds add up until the target makes progress."""
    clock = Clock(monkeypatch)
    watcher = make_watchdog(run_path, monkeypatch)
    journal(run_path, ev="begin", name="GraphLowering.run")
    advance(watcher, clock, 1)
    assert watcher.quiet_s == 0
    for _ in range(5):
        advance(watcher, clock, 1.5)
    assert watcher.quiet_s == pytest.approx(7.5)
    (run_path / "journal" / f"{os.getpid()}.now").write_bytes(encode_now(Now(1.0, "node", "add_3")))
    advance(watcher, clock, 1.5)
    assert watcher.quiet_s == 0 and watcher.last_progress == "node add_3"


def test_a_target_without_cpu_time_gets_more_time(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sixth of the CPU time that it wants, a minute of the clock counts as ten seconds."""
    clock = Clock(monkeypatch)
    watcher = make_watchdog(run_path, monkeypatch, served=1 / 6)
    journal(run_path, ev="begin", name="GraphLowering.run")
    advance(watcher, clock, 1)
    for _ in range(40):
        advance(watcher, clock, 1.5)
    assert watcher.quiet_s == pytest.approx(10.0)


def test_time_in_which_the_watchdog_slept_does_not_count(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a suspended machine, a stopped watchdog or a jump of the clock, an hour counts as two
    seconds.
    """
    clock = Clock(monkeypatch)
    watcher = make_watchdog(run_path, monkeypatch)
    journal(run_path, ev="begin", name="GraphLowering.run")
    advance(watcher, clock, 1)
    advance(watcher, clock, 3600)
    assert watcher.quiet_s <= MAX_TICK_S


def test_a_line_beyond_its_budget_is_not_progress(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo may trace the same line endlessly, which is not progress."""
    clock = Clock(monkeypatch)
    watcher = make_watchdog(run_path, monkeypatch)
    journal(run_path, ev="begin", name="bytecode_tracing")
    now = run_path / "journal" / f"{os.getpid()}.now"
    for repeats in (50, 99, 100):
        now.write_bytes(encode_now(Now(float(repeats), "line", "f.py:3", repeats, "f.py:3")))
        advance(watcher, clock, 1.5)
    assert watcher.quiet_s == 0
    for repeats in (101, 5000, 90000):
        now.write_bytes(encode_now(Now(float(repeats), "line", "f.py:3", repeats, "f.py:3")))
        advance(watcher, clock, 1.5)
    assert watcher.quiet_s == pytest.approx(4.5)


def test_a_busy_program_outside_the_compiler_is_not_a_stall(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training writes no events; inside the compiler, a busy CPU alone is not progress."""
    clock = Clock(monkeypatch)
    watcher = make_watchdog(run_path, monkeypatch, want=1.0)
    for _ in range(5):
        advance(watcher, clock, 1.5)
    assert watcher.quiet_s == 0
    journal(run_path, ev="begin", name="Scheduler.__init__")
    for _ in range(4):
        advance(watcher, clock, 1.5)
    assert watcher.quiet_s == pytest.approx(4.5)


def test_a_stall_that_ends_has_its_whole_length(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reported stall grows until the next progress, and a later stall is a new one."""
    clock = Clock(monkeypatch)
    watcher = make_watchdog(run_path, monkeypatch)
    journal(run_path, ev="begin", name="GraphLowering.run")
    advance(watcher, clock, 1)
    for quiet_s in (6.0, 9.0):
        for _ in range(4):
            advance(watcher, clock, 1.5)
        watcher.record_stall(Stall(INSIDE, cause="sleep", seconds=6.0))
        for _ in range(round((quiet_s - 6.0) / 1.5)):
            advance(watcher, clock, 1.5)
        journal(run_path, ev="begin", name=f"after {quiet_s}")
        advance(watcher, clock, 1.5)
    assert [stall.seconds for stall in watcher.stalls] == [6.0, 9.0]


@pytest.mark.parametrize(("repeats", "is_progress"), [(99, True), (101, False)])
def test_a_moving_stack_of_endless_unrolling_is_not_progress(
    run_path: Path, monkeypatch: pytest.MonkeyPatch, repeats: int, is_progress: bool
) -> None:
    """Dynamo's stack moves while it traces a line again, which is not progress beyond the budget
    of the line.
    """
    file = "/v/lib/python3.11/site-packages/torch/_dynamo/symbolic_convert.py"

    def moving_stack(tool: str | None, folder: Path, number: int, pid: int) -> Dump:
        frames = (Frame(file, f"step_{number}", number), Frame(file, "run", 1))
        return Dump(number, "py-spy", pid, (ThreadStack(pid, "MainThread", frames, True, tid=pid),))

    monkeypatch.setattr(stacks, "_py_spy", moving_stack)
    watcher = Watchdog(run_path, os.getpid(), 60.0, 100, lambda: 0.0)
    journal(run_path, ev="begin", name="bytecode_tracing")
    (run_path / "journal" / f"{os.getpid()}.now").write_bytes(
        encode_now(Now(1.0, "line", "f.py:3", repeats, "f.py:3"))
    )
    watcher.follower.read_news()
    main = watcher.follower.find_main_process(os.getpid())
    watcher._progress_at = 0.0
    assert watcher._progress_in_stacks(main) == []
    moved = [f"the stack of process {os.getpid()} changed"]
    assert watcher._progress_in_stacks(main) == (moved if is_progress else [])
    watcher.close()


@pytest.mark.parametrize("count", [2, 40])
def test_only_the_main_thread_of_many_has_its_wait_described(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The files that the threads wait for are not looked up for each of many threads."""
    monkeypatch.setattr(
        blocked_on.DescriptorLinks, "describe_wait", lambda self, pid, name, args: ("a pipe", 7)
    )
    end = threading.Event()
    threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(count)]
    try:
        for thread in threads:
            thread.start()
        samples = proc_snapshot.ProcSampler()
        samples.take_sample([os.getpid()])
        (process,) = samples.make_evidence({}, {}).processes
    finally:
        end.set()
        for thread in threads:
            thread.join()
    waits = {t.tid == os.getpid(): (t.waits_for, t.waits_for_pid) for t in process.threads}
    assert len(process.threads) > count
    assert waits == {True: ("a pipe", 7), False: ("a pipe", 7) if count == 2 else ("", 0)}


def test_an_incomplete_journal_is_followed(run_path: Path) -> None:
    """An incomplete line is read when its rest has arrived."""
    follower = JournalFollower(run_path / "journal", 100)
    line = encode_event(Begin(t=1.0, pid=7, tid=7, name="dynamo"))
    path = run_path / "journal" / "7.jsonl"
    path.write_bytes(line[:20])
    assert follower.read_news() == []
    path.write_bytes(line)
    assert follower.read_news() == ["begin dynamo"]
    assert follower.find_main_process(1).open_events == ("dynamo",)
    (run_path / "journal" / "notes.txt").write_text("not ours")
    assert follower.read_news() == []


def test_days_of_training_do_not_use_more_memory(run_path: Path) -> None:
    """Open events are kept, and closed events are forgotten."""
    follower = JournalFollower(run_path / "journal", 100)
    rows: list[Event] = [Begin(t=1.0, tid=7, name="dynamo")]
    rows += [kind(t=1.0, tid=7, name="pass") for _ in range(9000) for kind in (Begin, End)]
    (run_path / "journal" / "7.jsonl").write_bytes(b"".join(encode_event(r) for r in rows))
    follower.read_news()
    assert follower.find_main_process(1).open_events == ("dynamo",)
    assert sum(map(len, follower._kept.values())) < 3000


def test_a_blocked_read_names_the_pipe_and_its_other_end() -> None:
    """The call, the descriptor and the other processes that have it open are read from /proc of a
    real child.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write_end)
        os.read(read_end, 1)
        os._exit(0)
    os.close(read_end)
    try:
        for _ in range(200):
            name, args = blocked_on.current_system_call(child, child)
            if name == "read":
                break
            time.sleep(0.01)
        assert name == "read"
        description, pid = blocked_on.DescriptorLinks().describe_wait(child, name, args)
        assert pid == 0 and "a pipe" in description
    finally:
        os.close(write_end)
        os.waitpid(child, 0)


HOLDS = """
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(1000)
"""
WAITS = """
import fcntl, sys
def wait(lock_path):
    with open(lock_path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
wait(sys.argv[1])
"""


def test_a_lock_file_and_its_holder_are_found(run_path: Path) -> None:
    """The name is that of a local variable of the process that waits, and the kernel lists the
    holder.
    """
    lock, dumper = run_path / ("long " * 30) / "model's.lock", stacks.StackDumper(run_path)
    lock.parent.mkdir()
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(lock)], stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    waiter = subprocess.Popen([sys.executable, "-c", WAITS, str(lock)])
    try:
        assert wait_until(
            lambda: blocked_on.current_system_call(waiter.pid, waiter.pid)[0] == "flock"
        )
        assert dumper.find_lock_file(waiter.pid) == str(lock)
        (row,) = blocked_on.find_locks(waiter.pid, (), (str(lock),))
        assert (row.path, row.pid, row.is_holder) == (str(lock), holder.pid, True)
        assert blocked_on.find_locks(waiter.pid, (holder.pid,), ()) == (row,)
    finally:
        for process in (waiter, holder):
            process.kill()
            process.wait()
        dumper.close()


def test_an_unreadable_proc_only_makes_the_cause_unknown(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without /proc the dumps exist, and the cause is unknown, with the reason."""
    watcher = Watchdog(run_path, os.getpid(), 60.0, 100, lambda: 0.0)
    journal(run_path, ev="process", can_dump=False)
    watcher.check_progress()
    monkeypatch.setattr(blocked_on, "read_proc_file", lambda path: "")
    monkeypatch.setattr(hang_evidence, "ROUND_GAP_S", 0.01)
    taken = watcher.gather_final_evidence()
    assert taken.dumps and not taken.evidence.processes
    seen = Observation(main_pid=os.getpid(), dumps=taken.dumps, evidence=taken.evidence)
    assert diagnose_hang(seen).name == "unknown"
    watcher.close()


def test_a_watchdog_with_a_defect_continues_and_reports_it(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of reprokit stops neither the run nor the dumps, and is reported."""
    watcher = Watchdog(run_path, os.getpid(), 60.0, 100, lambda: 0.0)
    monkeypatch.setattr(watcher.follower, "read_news", lambda: 1 / 0)
    watcher.check_progress()
    taken = watcher.gather_final_evidence()
    assert any("ZeroDivisionError" in p for p in taken.problems)
    watcher.close()


def test_odd_files_in_the_journal_folder_do_not_block(run_path: Path) -> None:
    """A pipe without a writer, a link to endless zeros and odd names are skipped."""
    folder = run_path / "journal"
    os.mkfifo(folder / "7.jsonl")
    os.mkfifo(folder / "7.now")
    (folder / "8.jsonl").symlink_to("/dev/zero")
    (folder / "9.jsonl").symlink_to("nowhere")
    (folder / "\u00b2.jsonl").write_text("{}")
    (folder / "5.jsonl").write_bytes(encode_event(Begin(name="dynamo")))
    assert JournalFollower(folder, 100).read_news() == ["begin dynamo"]
    assert set(observation_reader.read_journals(run_path).by_pid) == {5}


def test_a_dead_process_is_not_watched(run_path: Path) -> None:
    """When a worker has died inside the compiler, its living parent is watched."""
    follower = JournalFollower(run_path / "journal", 100)
    dead = 4_000_000
    (run_path / "journal" / f"{dead}.jsonl").write_bytes(
        encode_event(Begin(name="GraphLowering.run"))
    )
    journal(run_path, ev="begin", name="stage:call-0")
    follower.read_news()
    assert follower.find_main_process(1).pid == os.getpid()


def test_dumps_do_not_fill_the_disk(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After days of samples every second of the older ones is deleted repeatedly, and the newest
    stay.
    """
    dumper = stacks.StackDumper(run_path)
    monkeypatch.setattr(stacks, "_py_spy", fake_py_spy)
    for _ in range(1000):
        dumper.dump_round([7])
    kept = stacks.read_dumps(run_path, max_rounds=10_000)
    assert len(kept) <= stacks.MAX_ROUNDS_ON_DISK + 1
    assert [d.number for d in kept][-20:] == list(range(981, 1001)) and kept[0].number < 200
    dumper.close()


def fake_py_spy(tool: str | None, folder: Path, number: int, pid: int) -> Dump:
    (folder / f"{number}-py-spy-{pid}.json").write_text('[{"frames": []}]')
    return Dump(number, "py-spy", pid, (ThreadStack(pid, "MainThread", ()),))


@pytest.mark.parametrize("text", ["[1]", "{}", '[{"frames": 3}]', "", "[[]]"])
def test_a_damaged_dump_is_left_out(text: str, run_path: Path) -> None:
    """One bad file does not affect the others."""
    (run_path / "stacks" / "1-py-spy-5.json").write_text(text)
    (run_path / "stacks" / "2-py-spy-5.json").write_text('[{"os_thread_id": 5, "frames": []}]')
    assert [d.number for d in stacks.read_dumps(run_path)] == [2]


def test_a_process_with_half_a_character_in_its_name_is_sampled(
    tmp_path: Path, run_path: Path
) -> None:
    """The kernel truncates names at 15 bytes, even inside a character."""
    program = (
        tmp_path / "\u043f\u0440\u043e\u0433\u0440\u0430\u043c\u043c\u0430-\u0442\u0435\u0441\u0442"
    )
    program.symlink_to(shutil.which("sleep") or "/bin/sleep")
    child = subprocess.Popen([program, "100"])
    try:
        watcher = sampler.Sampler(run_path / "samples.csv", child.pid)
        assert watcher.sample_if_due()
        watcher.close()
        assert str(child.pid) in (run_path / "samples.csv").read_text()
    finally:
        child.kill()
        child.wait()


def test_a_process_that_no_tool_can_read_gets_a_signal_before_the_run_ends(
    run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that py-spy cannot read gets a signal, also if the process that is explained was
    readable.
    """
    watcher = make_watchdog(run_path, monkeypatch)
    monkeypatch.setattr(
        hang_evidence.EvidenceGatherer, "pids_without_dump", property(lambda self: [4242])
    )
    monkeypatch.setattr(
        hang_evidence.EvidenceGatherer, "add_native_evidence", lambda self, evidence, seen: evidence
    )
    already: list[int] = []
    monkeypatch.setattr(
        hang_evidence.EvidenceGatherer,
        "dump_rest_by_signal",
        lambda self, pids: already.extend(pids),
    )
    assert watcher.gather_stall_evidence() is not None
    assert already == []
    watcher.close()


@pytest.mark.parametrize(("unit", "shown"), [("node", "add_3"), ("line", "")])
def test_only_a_position_of_the_present_phase_is_shown(
    unit: str, shown: str, run_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last record may be of an earlier graph or phase, such as its last node."""
    clock = Clock(monkeypatch)
    watcher = make_watchdog(run_path, monkeypatch)
    journal(run_path, ev="begin", name="GraphLowering.run")
    (run_path / "journal" / f"{os.getpid()}.now").write_bytes(encode_now(Now(1.0, unit, "add_3")))
    advance(watcher, clock, 1.5)
    assert watcher.run_progress(2.0, 0.0).position == shown
