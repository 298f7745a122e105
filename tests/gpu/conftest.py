"""What each check on a GPU gets: the facts about the device, and calls that end with its budget."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.system.child_commands import CommandFailed
from reprokit.host.watch import gpu_vendors
from tests.support import gpu_results
from tests.support.environments import clean_environ
from tests.support.reprokit_calls import CallResult, reprokit

QUERY_TIMEOUT_S = 120.0
QUERY = """
import json, torch
if not torch.cuda.is_available():
    raise SystemExit("torch has no CUDA device")
import triton
facts = {"GPU": torch.cuda.get_device_name(0), "CUDA": torch.version.cuda or "none"}
print(json.dumps({**facts, "torch": torch.__version__, "triton": triton.__version__}))
"""


@pytest.fixture(scope="session")
def cuda_device() -> dict[str, str]:
    """Facts about the first device, from a child, because a driver may not respond; skips the test
    where torch has no CUDA device.
    """
    command = [sys.executable, "-c", QUERY]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"torch did not answer in {QUERY_TIMEOUT_S:.0f} s whether it has a CUDA device")
    if done.returncode:
        pytest.skip((done.stderr.strip().splitlines() or ["python failed"])[-1])
    facts: dict[str, str] = json.loads(done.stdout)
    try:
        facts["driver"] = gpu_vendors.query_gpus(QUERY_TIMEOUT_S)["driver"]
    except (CommandFailed, KeyError):
        facts["driver"] = "unknown"
    return facts


class GpuCheck:
    """One check. Its children are ended when its budget is used up."""

    def __init__(
        self, device: dict[str, str], budget_s: float, record: Callable[[str, object], None]
    ) -> None:
        self.device, self._record = device, record
        self._budget_s, self._ends = budget_s, time.monotonic() + budget_s

    def note(self, **facts: str | int) -> None:
        """Add numbers or a note to the row of the check, also if it then fails."""
        for name, value in facts.items():
            self._record(name, value)

    def capture(self, *words: str | Path, **environ: str) -> CallResult:
        """Run ``reprokit capture --json`` without the steps that take longer."""
        return self.reprokit("capture", "--json", *words, **environ)

    def reprokit(self, *words: str | Path, **environ: str) -> CallResult:
        """Run a command of reprokit."""
        try:
            return reprokit(*words, env=clean_environ(**environ), timeout_s=self._left_s())
        except subprocess.TimeoutExpired:
            self._end()

    @contextlib.contextmanager
    def running(self, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
        """Run the interpreter until it prints a line, and kill it at the end of the block."""
        command = [sys.executable, *map(str, words)]
        with subprocess.Popen(
            command, env=clean_environ(), stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                if not select.select([process.stdout], [], [], self._left_s())[0]:
                    self._end()
                assert process.stdout.readline(), f"it ended: {process.wait()}"
                yield process
            finally:
                process.kill()

    def python(self, *words: str | Path, **environ: str) -> str:
        """Run the interpreter, and return what it prints."""
        command = [sys.executable, *map(str, words)]
        try:
            done = subprocess.run(
                command,
                env=clean_environ(**environ),
                capture_output=True,
                text=True,
                timeout=self._left_s(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            self._end()
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def _left_s(self) -> float:
        return max(self._ends - time.monotonic(), 0.1)

    def _end(self) -> Any:
        pytest.fail(f"the check ran past its budget of {self._budget_s:.0f} s")


@pytest.fixture
def gpu(
    request: pytest.FixtureRequest,
    cuda_device: dict[str, str],
    record_property: Callable[[str, object], None],
) -> GpuCheck:
    """The running check, with the title and the budget of its marker ``gpu``."""
    title, budget_s = next(m.args for m in request.node.iter_markers("gpu") if m.args)
    of_case = getattr(request.node, "callspec", None)
    record_property(gpu_results.CHECK, f"{title}: {of_case.id}" if of_case else title)
    record_property(gpu_results.DEVICE, cuda_device)
    return GpuCheck(cuda_device, budget_s, record_property)
