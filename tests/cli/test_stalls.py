"""A stall outside the compiler is reported and the program continues; a stall inside the compiler
ends the run. No stall is missed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.environments import clean_environ
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

from ..waits.kinds import KINDS
from .test_hangs import RANKS

WAITS = Path(__file__).resolve().parents[1] / "waits" / "kinds.py"
STALL_S = "4"
WAITED_S = "25"
"""Seconds, longer than the stall and the samples during it, also on a busy machine."""


def words_of(command: list[str], *words: str) -> list[str]:
    """Return the words of a capture of a command with a short stall."""
    return ["--no-trace", "--stall", STALL_S, *words, "--", *command]


def capture(folder: Path, command: list[str], *words: str, **more: str) -> CallResult:
    """Capture a command with a short stall."""
    options = ("--json", "--output-dir", folder, *words_of(command, *words))
    return reprokit("capture", *options, env=clean_environ(**more))


def stalls(done: CallResult) -> list[dict[str, Any]]:
    document = json.loads((done.run_dir / "run.json").read_text())
    rows: list[dict[str, Any]] = document["stalls"]
    return rows


REAL = ("checkpoint", "input")


def command_of(kind: str) -> list[str]:
    """Return the command of a healthy program that waits."""
    command = [sys.executable, str(WAITS), kind, "aot_eager", WAITED_S]
    return [sys.executable, "-c", RANKS, *command] if kind == "barrier" else command


def check_wait(kind: str, done: CallResult) -> None:
    """Check that the program ended by itself, and that the report has its wait."""
    assert (done.status, done.kind) == (0, "ok"), done.out
    # two ranks may mix their text and their line ends
    assert (done.run_dir / "logs" / "stdout.txt").read_text().count("done") == (
        2 if kind == "barrier" else 1
    )
    stall_rows = stalls(done)
    assert stall_rows and stall_rows[-1]["state"] in ("idle", "outside"), stall_rows
    assert max(stall["seconds"] for stall in stall_rows) >= float(STALL_S)
    assert any(
        "idle for" in row.lower() or "outside the compiler" in row for row in issue_evidence(done)
    )


@pytest.mark.real
@pytest.mark.parametrize("kind", REAL)
def test_a_healthy_program_that_waits_is_neither_stopped_nor_called_a_hang(
    kind: str, tmp_path: Path
) -> None:
    """The program prints its last line and exits with status 0; the report has the place and the
    length of the wait.
    """
    check_wait(kind, capture(tmp_path, command_of(kind)))


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in (*REAL, "kernel")])
def test_more_healthy_programs_that_wait_are_not_called_hangs(
    kind: str, recorded: Recorder
) -> None:
    """The verdict is ok for each way to wait, and the report has the place and the length."""
    check_wait(kind, recorded(*words_of(command_of(kind))))


def issue_evidence(done: CallResult) -> list[str]:
    verdict = json.loads((done.run_dir / "verdict.json").read_text())
    return list(verdict["evidence"])


SLEEPS = (
    "import time, torch\ntorch.compile(lambda x: x + 1,"
    " backend='eager')(torch.ones(2))\ntime.sleep({s})\nprint('done')\n"
)


@pytest.mark.real
def test_a_stall_outside_the_compiler_is_printed_once_with_its_stack(
    write: Any, tmp_path: Path
) -> None:
    """One line and the stack on stderr; the program's own output is unchanged."""
    script = write("waits.py", SLEEPS.format(s=WAITED_S))
    words = ("capture", "--no-trace", "--stall", STALL_S, "--output-dir", tmp_path / "out", "--")
    done = reprokit(*words, sys.executable, script)
    assert done.status == 0, done.out
    rows = [row for row in done.err.splitlines() if "idle for" in row]
    assert (
        len(rows) == 1 and "waits.py:3 in <module>" in rows[0] and "this is not a hang" in rows[0]
    ), done.err
    assert f"    {script}:3 in <module>" in done.err


def test_on_stall_end_stops_a_program_that_waits_outside_the_compiler(
    write: Any, recorded: Recorder
) -> None:
    """With --on-stall end, silence is a failure: a hang, with its cause."""
    script = write("waits.py", SLEEPS.format(s=1000))
    done = recorded(*words_of([sys.executable, str(script)], "--on-stall", "end"))
    assert (done.status, done.kind, done.json["verdict"]["cause"]) == (1, "hang", "sleep"), done.out


HANGS = """
import time, torch
def backend(gm, inputs):
    {body}
    return gm
torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
print("went on", flush=True)
"""


@pytest.mark.real
def test_on_stall_report_does_not_stop_a_compile(write: Any, tmp_path: Path) -> None:
    """A custom backend that sleeps is reported as inside the compiler, and its program ends
    normally.
    """
    script = write("sleeps.py", HANGS.format(body=f"time.sleep({WAITED_S})"))
    done = capture(tmp_path / "out", [sys.executable, str(script)], "--on-stall", "report")
    assert (done.status, done.kind) == (0, "ok"), done.out
    (found,) = stalls(done)
    assert (found["state"], found["phase"], found["cause"]) == ("inside", "backend", "sleep")
    assert (done.run_dir / "logs" / "stdout.txt").read_text() == "went on\n"


NATIVE_SLEEP = HANGS.format(body="import ctypes; ctypes.PyDLL(None).sleep(1000)")


def check_native_sleep(done: CallResult) -> None:
    """Check that the verdict names the place and the time."""
    assert (done.status, done.kind) == (1, "hang"), done.out
    verdict = done.json["verdict"]
    assert verdict["phase"] == "backend" and verdict["cause"] == "gil-blocked", verdict
    assert "native.py:4 in backend" in verdict["detail"] and "No progress for" in verdict["reason"]


@pytest.mark.real
def test_a_native_sleep_that_a_signal_would_end_is_still_a_hang(write: Any, tmp_path: Path) -> None:
    """libc's sleep holds the GIL, and any signal ends it: the verdict names the place and the time,
    with only faulthandler's signal.
    """
    command = [sys.executable, str(write("native.py", NATIVE_SLEEP))]
    check_native_sleep(capture(tmp_path / "out", command, REPROKIT_PY_SPY=os.devnull))


def test_a_native_sleep_is_a_hang_with_py_spy(write: Any, recorded: Recorder) -> None:
    """The verdict of the same program is the same with py-spy."""
    script = write("native.py", NATIVE_SLEEP)
    check_native_sleep(recorded(*words_of([sys.executable, str(script)])))


def test_an_idle_program_at_its_deadline_is_not_a_hang(write: Any, recorded: Recorder) -> None:
    """The user set a deadline and the program sleeps: unknown, idle."""
    script = write("waits.py", SLEEPS.format(s=1000))
    done = recorded(*words_of([sys.executable, str(script)], "--timeout", "20"))
    assert (done.status, done.kind, done.json["verdict"]["cause"]) == (
        3,
        "unknown",
        "idle",
    ), done.out
    assert "is not a hang of the compiler" in done.json["verdict"]["reason"]


def test_dumps_before_the_hang_do_not_mark_frames_as_moved(write: Any, recorded: Recorder) -> None:
    """A sample during the import, long before the hang: report, terminal and signature agree that
    nothing advanced since then.
    """
    body = "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()"
    script = write("hang.py", "import time\ntime.sleep(3)\n" + HANGS.format(body=body))
    done = recorded(*words_of([sys.executable, str(script)]))
    assert done.kind == "hang", done.out
    pack = done.run_dir / "pack"
    model = json.loads((pack / "report.json").read_text())
    (main,) = (s for s in model["stacks"] if s["who"] == "thread MainThread")
    assert main["frames"] and not any(frame["has_moved"] for frame in main["frames"])
    signed = json.loads((pack / "signature.json").read_text())
    still = next(
        row for row in signed["explain"] if row.endswith("frames did not move between the dumps")
    )
    assert int(still.split()[0]) >= len(main["frames"]) or len(main["frames"]) == 40
    assert "(moved)" not in reprokit("show", done.json["pack"]).out
    assert any("nothing moved" in row for row in issue_evidence(done))
