"""Ask NVIDIA's management library, in a process of its own: a GPU that does not respond can block
the call for ever.

``gpu_vendors.py`` starts this module: ``python -m reprokit.host.watch.nvml`` writes ``{"driver",
"cuda_of_driver", "gpus": [...]}`` as JSON, and with the argument ``watch`` it writes one line a
second with the use of each GPU.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any


def query_nvml() -> dict[str, object]:
    """Return the driver, its CUDA version, and the properties of each GPU.

    Raises pynvml.NVMLError if there is no driver.
    """
    import pynvml

    pynvml.nvmlInit()
    version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    return {
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "cuda_of_driver": f"{version // 1000}.{version % 1000 // 10}",
        "gpus": [_gpu(number) for number in range(pynvml.nvmlDeviceGetCount())],
    }


def _gpu(number: int) -> dict[str, object]:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    queries: dict[str, Callable[[], Any]] = {
        "name": lambda: pynvml.nvmlDeviceGetName(handle),
        "capability": lambda: ".".join(map(str, pynvml.nvmlDeviceGetCudaComputeCapability(handle))),
        "memory_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        "vbios": lambda: pynvml.nvmlDeviceGetVbiosVersion(handle),
        "mig": lambda: pynvml.nvmlDeviceGetMigMode(handle)[0],
    }
    facts: dict[str, object] = {}
    for name, query in queries.items():
        with contextlib.suppress(pynvml.NVMLError):  # not every GPU supports every query
            facts[name] = query()
    return facts


def query_gpu_use() -> list[dict[str, float | None]]:
    """Return the use of each GPU since the last query: the fields of :class:`GpuUse`."""
    import pynvml

    uses: list[dict[str, float | None]] = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        with contextlib.suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            used = pynvml.nvmlDeviceGetMemoryInfo(handle).used
            share = None
            with contextlib.suppress(pynvml.NVMLError):  # a GPU in MIG mode has no such rate
                share = pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
            uses.append({"index": number, "busy_share": share, "memory_bytes": used})
    return uses


def main(words: list[str]) -> None:
    """Write the answer once, or the use of the GPUs once a second until the reader is gone."""
    import pynvml

    try:
        first = query_nvml()
        if "watch" not in words:
            sys.stdout.write(json.dumps(first))
            return
        while True:
            sys.stdout.write(json.dumps(query_gpu_use()) + "\n")
            sys.stdout.flush()
            time.sleep(1.0)
    except BrokenPipeError:
        return
    except pynvml.NVMLError as problem:
        sys.stderr.write(f"cannot query an NVIDIA GPU: {problem}\n")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main(sys.argv[1:])
