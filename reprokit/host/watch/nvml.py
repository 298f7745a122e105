"""Ask NVIDIA's management library, in a process of its own: a wedged GPU can block the call for
ever.

``python -m reprokit.host.watch.nvml`` writes ``{"driver", "cuda_of_driver", "gpus": [...]}`` as
JSON; ``python -m reprokit.host.watch.nvml watch`` writes one line a second with the use of each
GPU.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reprokit.core.records.process_state import GpuUse


def ask_nvml() -> dict[str, Any]:
    """Driver, its CUDA version, and one dict a GPU; raises pynvml.NVMLError where there is no
    driver.
    """
    import pynvml

    pynvml.nvmlInit()
    version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    return {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "cuda_of_driver": f"{version // 1000}.{version % 1000 // 10}",
        "gpus": [_gpu(number) for number in range(pynvml.nvmlDeviceGetCount())],
    }


def _gpu(number: int) -> dict[str, Any]:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    questions: dict[str, Callable[[], Any]] = {
        "name": lambda: pynvml.nvmlDeviceGetName(handle),
        "capability": lambda: ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle))),
        "memory_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        "vbios": lambda: pynvml.nvmlDeviceGetVbiosVersion(handle),
        "mig": lambda: pynvml.nvmlDeviceGetMigMode(handle)[0],
    }
    facts: dict[str, Any] = {}
    for name, question in questions.items():
        with contextlib.suppress(pynvml.NVMLError):  # not every GPU answers every question
            facts[name] = question()
    return facts


def gpu_use() -> list[dict[str, Any]]:
    """Use of each GPU since the last question: the fields of :class:`Gpu`."""
    import pynvml

    found = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(number)
        with contextlib.suppress(pynvml.NVMLError):
            share = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
            found.append({"index": number, "busy_share": share, "memory_bytes": used})
    return found


STALE_S = 5.0


class GpuFeed:
    """The last word of a process that asks NVML once a second; empty where there is no NVIDIA
    device.
    """

    def __init__(self) -> None:
        self._last: tuple[GpuUse, ...] = ()
        self._heard = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        if glob.glob("/dev/nvidia[0-9]*"):
            command = [sys.executable, "-m", "reprokit.host.watch.nvml", "watch"]
            environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])}
            with contextlib.suppress(OSError):
                self._child = subprocess.Popen(
                    command,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
                threading.Thread(target=self._read, daemon=True, name="gpus").start()

    def _read(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        for line in self._child.stdout:
            with contextlib.suppress(ValueError, TypeError):
                self._last, self._heard = (
                    tuple(GpuUse(**row) for row in json.loads(line)),
                    time.monotonic(),
                )

    @property
    def last(self) -> tuple[GpuUse, ...]:
        """What was said last; nothing when that is old: a wedged driver stops answering."""
        return self._last if time.monotonic() - self._heard < STALE_S else ()

    def close(self) -> None:
        """End the asking process; it may be stuck in the driver, so nobody waits for it."""
        if self._child is not None:
            self._child.kill()


def main(words: list[str]) -> None:
    """Answer once, or once a second until the reader is gone."""
    import pynvml

    try:
        first = ask_nvml()
        if "watch" not in words:
            sys.stdout.write(json.dumps(first))
            return
        while True:
            sys.stdout.write(json.dumps(gpu_use()) + "\n")
            sys.stdout.flush()
            time.sleep(1.0)
    except BrokenPipeError:
        return
    except pynvml.NVMLError as problem:
        sys.stderr.write(f"no NVIDIA GPU can be asked: {problem}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1:])
