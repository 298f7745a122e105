"""A signal at any stage of a capture: what was asked for is given up, the pack is left, the exit
status is 130.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.pack import reader

from ..conftest import clean_environ, hear_signals, reprokit_command, stragglers

RAISES = """
import torch
from torch._dynamo import register_backend

@register_backend
def broken(gm, inputs):
    {body}

def f(x):
    y = x + 1
    return (y * 2).sin()

def make():
    return f, (torch.ones(3),)
"""
BODIES = {
    "raises": "raise ValueError('it is odd')",
    "hangs": "import time; time.sleep(1000)",
    "passes": "return gm.forward",
}
ALL = {"REPROKIT_MINIMIZE": "1", "REPROKIT_ABLATE": "1", "REPROKIT_COMPARE": "1"}
STAGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "run": ("reprokit: running ", "raises", {}),
    "eager run": ("running once more without torch.compile", "raises", {}),
    "comparison with eager": ("comparing its results", "passes", ALL),
    "questions": ("asking what is still open", "hangs", {}),
    "minimization": ("minimizing, for at most", "raises", ALL),
    "proof": ("proving the repro", "raises", ALL),
    "ablation": ("asking with which backends", "raises", {"REPROKIT_ABLATE": "1"}),
    "environment": ("collecting the environment", "raises", {}),
    "packing": ("packing", "raises", {}),
}
"""Each stage: the line that begins it, how the backend of the program fails, and what is asked
for.
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupted_at(
    stage: str, number: signal.Signals, delay_s: float, write: Any, place: Path
) -> tuple[int, str, dict[str, str]]:
    """Capture until a stage begins, and send the signal; gives the status, all that was said, and
    the environment.
    """
    line, body, asked = STAGES[stage]
    env = clean_environ(FAULT_MARK=uuid.uuid4().hex, **asked)
    program = write("program.py", RAISES.format(body=BODIES[body]))
    words = ("--backend", "broken", "--stall", "5", "--budget", "60", "--output-dir", str(place))
    process = subprocess.Popen(
        reprokit_command("capture", *words, "--model", f"{program}:make"),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_signals,
    )
    guard = threading.Timer(240, process.kill)
    guard.start()
    said: list[str] = []
    assert process.stderr is not None
    try:
        for row in process.stderr:
            said.append(row)
            if line in row:
                time.sleep(delay_s)
                process.send_signal(number)
                break
        said += process.stderr
        return process.wait(), "".join(said), env
    finally:
        guard.cancel()
        process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "number"), [(s, SIGNALS[n % 3]) for n, s in enumerate(STAGES)])
def test_an_interrupt_at_any_stage(
    stage: str, number: signal.Signals, write: Any, tmp_path: Path
) -> None:
    """Each stage with one of the signals, which are handled alike: 130, one pack that can be read,
    nothing that runs on.
    """
    status, said, env = interrupted_at(stage, number, 0.0, write, tmp_path / "out")
    assert status == 130, said
    (pack,) = (tmp_path / "out").glob("*.tar.gz")
    assert reader.read_pack(pack).files["environment.json"]
    assert "Traceback" not in said
    assert stragglers(env["FAULT_MARK"]) == []
