"""A signal at any stage of a capture abandons the stage, the pack is written, and the exit status
is 130.
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
from tests.support.environments import clean_environ
from tests.support.processes import restore_signals, survivors_after_wait, wait_until
from tests.support.reprokit_calls import reprokit_command

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
    "hangs": "open(__file__ + '.entered', 'w').close(); import time; time.sleep(1000)",
    "passes": "return gm.forward",
    "sleeps on import": "pass\n\nimport time; time.sleep(60)",
}
ALL = {"REPROKIT_MINIMIZE": "1", "REPROKIT_ABLATE": "1", "REPROKIT_COMPARE": "1"}
STAGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "run": ("reprokit: running ", "hangs", {}),
    "eager run": ("running without torch.compile", "raises", {}),
    "comparison with eager": ("comparing its results", "passes", ALL),
    "questions": ("running it again, in shorter runs", "hangs", {}),
    "minimization": ("reprokit: reducing: ", "raises", ALL),
    "proof": ("reprokit: proving in fresh processes", "raises", ALL),
    "ablation": ("reprokit: trying other backends and modes", "raises", {"REPROKIT_ABLATE": "1"}),
    "environment": ("collecting the environment", "raises", {}),
    "packing": ("packing", "raises", {}),
    "import": ("reprokit: 10 s of at most ", "sleeps on import", {}),
}
"""For each stage: the line that begins it, the failure of the program's backend, and the variables.
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def interrupted_at(
    stage: str, number: signal.Signals, delay_s: float, write: Any, folder: Path
) -> tuple[int, str, dict[str, str]]:
    """Capture until a stage begins, and send the signal; return the status, the output and the
    environment.
    """
    line, body, variables = STAGES[stage]
    env = clean_environ(FAULT_MARK=uuid.uuid4().hex, **variables)
    program = write("program.py", RAISES.format(body=BODIES[body]))
    words = (
        "--backend",
        "broken",
        "--stall",
        "20" if stage == "import" else "5",
        "--budget",
        "60",
        "--output-dir",
        str(folder),
    )
    process = subprocess.Popen(
        reprokit_command("capture", *words, "--model", f"{program}:make"),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_signals,
    )
    guard = threading.Timer(240, process.kill)
    guard.start()
    lines: list[str] = []
    assert process.stderr is not None
    try:
        for row in process.stderr:
            lines.append(row)
            if line in row:
                if stage == "run":  # before it compiles, there is nothing to pack
                    assert wait_until(Path(f"{program}.entered").exists)
                time.sleep(delay_s)
                process.send_signal(number)
                break
        lines += process.stderr
        return process.wait(), "".join(lines), env
    finally:
        guard.cancel()
        process.kill()


REAL: dict[str, Any] = {
    "run": (),
    "minimization": pytest.mark.real("it captures a failure, and begins to reduce it"),
    "packing": (),
}
"""The marks of the stages that are interrupted in each run of the tests, one with each signal."""


@pytest.mark.real
@pytest.mark.parametrize(
    ("stage", "number"),
    [
        pytest.param(stage, SIGNALS[n % 3], marks=REAL.get(stage, pytest.mark.long))
        for n, stage in enumerate(STAGES)
    ],
)
def test_an_interrupt_at_any_stage(
    stage: str, number: signal.Signals, write: Any, tmp_path: Path
) -> None:
    """Each stage with one of the signals gives 130, one readable pack, and no process that
    continues. The verdict is printed before the failure is studied.
    """
    status, output, env = interrupted_at(stage, number, 0.0, write, tmp_path / "out")
    assert status == 130, output
    (pack,) = (tmp_path / "out").glob("*.tar.gz")
    assert reader.read_pack(pack).files["environment.json"]
    assert "Traceback" not in output
    if stage in ("minimization", "proof", "ablation"):
        verdict = output.index("reprokit: exception in backend: ValueError was raised")
        assert verdict < output.index("Ctrl-C ends this early") < output.index(STAGES[stage][0])
        assert f"your line: {tmp_path / 'program.py'}:" in output
    assert survivors_after_wait(env["FAULT_MARK"]) == []
