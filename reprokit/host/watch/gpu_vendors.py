"""The GPUs of this machine, from one program for each vendor.

A new vendor is a row here and a module like ``nvml.py``. Such a module runs as a process of its
own, because a GPU that does not respond can block a call into its driver for ever.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Any

from reprokit.core.records.process_state import GpuUse
from reprokit.host.system import host_log
from reprokit.host.system.child_commands import PACKAGE, CommandFailed, own_command, run_for_output

STALE_S = 5.0
"""A reading that is older is not shown: a driver that does not respond sends no new one."""
PACKAGE_FOLDER = str(PACKAGE.parent)


@dataclass(frozen=True)
class GpuVendor:
    """One vendor of GPUs."""

    name: str
    devices: str
    """A glob pattern of the device files that its driver makes."""
    module: str
    """Run as a program, it writes one JSON object whose ``gpus`` has one object for each GPU, or
    writes one line to stderr and fails. With the word ``watch`` it writes one line a second: a list
    with the fields of :class:`GpuUse` for each GPU.
    """


GPU_VENDORS: tuple[GpuVendor, ...] = (
    GpuVendor("NVIDIA", "/dev/nvidia[0-9]*", "reprokit.host.watch.nvml"),
)


def query_gpus(timeout_s: float) -> dict[str, Any]:
    """Return driver versions and ``gpus``, one object for each GPU of any vendor.

    Raises CommandFailed with the first reason where no vendor's program answers, although there are
    device files of a vendor.
    """
    answers: list[dict[str, Any]] = []
    problems: list[CommandFailed] = []
    for vendor in GPU_VENDORS:
        command = own_command(vendor.module)
        try:
            text = run_for_output(command, timeout_s, {"PYTHONPATH": PACKAGE_FOLDER})
        except CommandFailed as problem:
            if glob.glob(vendor.devices):
                problems.append(problem)
        else:
            answers.append(json.loads(text))
    if not answers and problems:
        raise problems[0]
    merged = {name: value for answer in reversed(answers) for name, value in answer.items()}
    return {**merged, "gpus": [gpu for answer in answers for gpu in answer.get("gpus") or ()]}


class GpuFeed:
    """The last reading of each vendor's program, which writes one a second."""

    def __init__(self) -> None:
        self._readings: dict[str, tuple[float, tuple[GpuUse, ...]]] = {}
        self._children: list[subprocess.Popen[bytes]] = []
        for vendor in GPU_VENDORS:
            if glob.glob(vendor.devices):
                with host_log.suppress(OSError):
                    self._start(vendor)

    def _start(self, vendor: GpuVendor) -> None:
        child = subprocess.Popen(
            own_command(vendor.module, "watch"),
            env={**os.environ, "PYTHONPATH": PACKAGE_FOLDER},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._children.append(child)
        reader = threading.Thread(
            target=self._read, args=(vendor, child), daemon=True, name=f"{vendor.name} GPUs"
        )
        reader.start()

    def _read(self, vendor: GpuVendor, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        for line in child.stdout:
            with host_log.suppress(ValueError, TypeError):
                uses = tuple(GpuUse(**row) for row in json.loads(line))
                self._readings[vendor.name] = time.monotonic(), uses

    @property
    def last(self) -> tuple[GpuUse, ...]:
        """The newest use of each GPU; empty for a vendor whose last reading is old."""
        limit = time.monotonic() - STALE_S
        readings = list(self._readings.values())
        return tuple(use for at, uses in readings if at > limit for use in uses)

    def close(self) -> None:
        """Kill the programs without waiting for them: one may be blocked in its driver."""
        for child in self._children:
            child.kill()
