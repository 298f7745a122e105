"""The probe server does not start the driver of a GPU before it forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import warm_processes
from tests.support.environments import ROOT, clean_environ

WARM_UP = """
import os, sys, traceback
import torch
torch.version.cuda = "13.0"  # as a build for CUDA, on a machine with a device file
asked = []
def is_available():
    asked.append(os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"))
    return False
torch.cuda.is_available = is_available
from reprokit.agent.serve import forkserver, gpu_driver
print(gpu_driver.is_needed())
gpu_driver.DEVICE_FILES = {"cuda": ("/dev/null",)}
print(gpu_driver.is_needed())
forkserver._warm_up(sys.argv[1])
print([how for how in asked if how != "1"], "PYTORCH_NVML_BASED_CUDA_CHECK" in os.environ)
print("torch._inductor.compile_fx" in sys.modules)
forkserver._compile_small("dynamo")
print(None in asked)
torch.version.cuda = None
print(gpu_driver.is_needed(), gpu_driver.is_started())
gpu_driver._OPENED = ("/dev/null",)
with open("/dev/null"):
    print(gpu_driver.is_started())
"""


@pytest.mark.real
def test_a_server_on_a_machine_with_a_gpu_imports_and_compiles_nothing(tmp_path: Path) -> None:
    """Without a compile nothing asks CUDA for a device; a compile of Dynamo would."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", WARM_UP, "aot"],
        env=clean_environ(PYTHONPATH=str(ROOT), **cache),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "False",
        "True",
        "[] False",
        "True",
        "True",
        "False False",
        "True",
    ], done.stdout + done.stderr


IN_CHILD = """
import torch
from reprokit.agent.serve import gpu_driver
ones = torch.ones
torch.ones = lambda *size, device: {body}
print(gpu_driver.works_in_child())
"""


@pytest.mark.parametrize(
    ("body", "works"), [("ones(*size)", True), ("ones(9)", False), ("1 / 0", False)]
)
def test_a_child_shows_whether_the_driver_survives_a_fork(
    body: str, works: bool, tmp_path: Path
) -> None:
    """It computes on the GPU. Here the CPU takes its place."""
    done = warm_processes.run_torch_program(IN_CHILD.format(body=body), cwd=tmp_path)
    assert done.stdout.split() == [str(works)], done.stdout + done.stderr
