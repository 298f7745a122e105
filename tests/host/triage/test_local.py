"""Jobs run at the same time as far as cores, memory and GPUs allow, and each GPU is used by one
run.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reprokit.host.nightly.engines import local_engine
from reprokit.host.nightly.engines.local_engine import MachineResources
from reprokit.host.nightly.ledger import ledger_file
from reprokit.host.nightly.schedule import night
from reprokit.host.nightly.suite import suite_file
from reprokit.host.system import interrupts


def wants(cores: int = 1, memory_gb: float = 1.0, gpus: int = 0) -> Any:
    return SimpleNamespace(cores=cores, memory_bytes=memory_gb * 1e9, gpus=gpus)


def running(wanted: Any, held: Any = ()) -> Any:
    return SimpleNamespace(job=wanted, gpus=[*held])


@pytest.mark.parametrize(
    ("job", "fits"),
    [
        (wants(), True),
        (wants(cores=2), False),
        (wants(memory_gb=6), False),
        (wants(cores=1, memory_gb=4), True),
    ],
)
def test_a_job_fits_into_the_free_resources(job: Any, fits: bool) -> None:
    """A running job uses one core and four of eight gigabytes on a machine with two cores."""
    gpus = local_engine._room(job, [running(wants(memory_gb=4))], MachineResources(2, 8e9))
    assert (gpus is not None) == fits


def test_a_job_larger_than_the_machine_runs_alone() -> None:
    """Such a job would never start otherwise; beside a running job it waits."""
    assert local_engine._room(wants(cores=64, memory_gb=900), [], MachineResources(2, 8e9)) == []
    assert local_engine._room(wants(cores=64), [running(wants())], MachineResources(2, 8e9)) is None


def test_a_gpu_is_used_by_one_run() -> None:
    """The lock belongs to the machine, so it also applies to other nightly runs."""
    machine = MachineResources(8, 64e9, [f"test-{uuid.uuid4()}", f"test-{uuid.uuid4()}"])
    first = local_engine._room(wants(gpus=1), [], machine)
    assert first is not None
    both = local_engine._room(wants(gpus=2), [running(wants(gpus=1), first)], machine)
    assert both is None
    second = local_engine._room(wants(gpus=1), [running(wants(gpus=1), first)], machine)
    assert second is not None and second[0][0] != first[0][0]
    other_night = local_engine._room(wants(gpus=1), [], MachineResources(8, 64e9, machine.gpus))
    assert other_night is None
    for _, lock in (*first, *second):
        lock.close()
    again = local_engine._room(wants(gpus=2), [], machine)
    assert again is not None
    for _, lock in again:
        lock.close()


def test_a_run_sees_only_its_own_gpu(tmp_path: Path) -> None:
    """A run sees only its own GPU; a job that needs more GPUs than the machine has fails with a
    message.
    """
    (tmp_path / "see.py").write_text(
        "import os; open('seen', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\n"
    )
    rows = "".join(
        f'[[targets]]\ncommand = ["{{python}}", "see.py"{more}]\ngpus = {n}\n'
        for n, more in ((1, ""), (2, ', "x"'))
    )
    (tmp_path / "suite.toml").write_text(f"[suite]\nretries = 0\n{rows}")
    suite = suite_file.read_suite(tmp_path / "suite.toml")
    gpu = f"test-{uuid.uuid4()}"
    with (
        night.lock_output(tmp_path / "out") as output,
        ledger_file.open_ledger(tmp_path / "l.sqlite", is_new_ok=True) as store,
    ):
        work = night.begin_jobs(
            suite, suite.cells, {"default": sys.executable}, {}, output, store, print
        )
        with interrupts.deferred():
            local_engine.run_on_machine(
                work, MachineResources(2, 8e9, [gpu]), lambda words: None, print
            )
        problems = [
            json.loads((job.folder / "result.json").read_text())["problem"] for job in work.jobs
        ]
    assert (tmp_path / "seen").read_text() == gpu
    assert problems == ["", "it needs 2 GPUs, and this machine has 1"]
