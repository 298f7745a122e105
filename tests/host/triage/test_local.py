"""What runs at once on one machine: as much as cores, memory and GPUs allow, a GPU by one run."""

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


def running(one: Any, held: Any = ()) -> Any:
    return SimpleNamespace(job=one, gpus=[*held])


@pytest.mark.parametrize(
    ("one", "fits"),
    [
        (wants(), True),
        (wants(cores=2), False),
        (wants(memory_gb=6), False),
        (wants(cores=1, memory_gb=4), True),
    ],
)
def test_room_is_what_is_left(one: Any, fits: bool) -> None:
    """Beside one core and four gigabytes of two and eight."""
    found = local_engine._room(one, [running(wants(memory_gb=4))], MachineResources(2, 8e9))
    assert (found is not None) == fits


def test_what_is_larger_than_the_machine_runs_alone() -> None:
    """It would never run otherwise; beside another it waits."""
    assert local_engine._room(wants(cores=64, memory_gb=900), [], MachineResources(2, 8e9)) == []
    assert local_engine._room(wants(cores=64), [running(wants())], MachineResources(2, 8e9)) is None


def test_a_gpu_is_held_by_one_run() -> None:
    """Of this night, and of every other on the machine: the lock is the machine's."""
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


@pytest.mark.slow
def test_a_run_sees_its_gpu_and_none_where_there_is_none(tmp_path: Path) -> None:
    """The run's own GPU is the only visible one; what needs more than there is is lost, and
    told.
    """
    (tmp_path / "see.py").write_text(
        "import os; open('seen', 'w').write(os.environ['CUDA_VISIBLE_DEVICES'])\n"
    )
    rows = "".join(
        f'[[targets]]\ncommand = ["{{python}}", "see.py"{more}]\ngpus = {n}\n'
        for n, more in ((1, ""), (2, ', "x"'))
    )
    (tmp_path / "suite.toml").write_text(f"[suite]\nretries = 0\n{rows}")
    asked = suite_file.read_suite(tmp_path / "suite.toml")
    gpu = f"test-{uuid.uuid4()}"
    with (
        night.hold_night(tmp_path / "out") as output,
        ledger_file.open_ledger(tmp_path / "l.sqlite", is_new_ok=True) as store,
    ):
        work = night.begin_jobs(
            asked, asked.cells, {"default": sys.executable}, {}, output, store, print
        )
        with interrupts.deferred():
            local_engine.run_on_machine(
                work, MachineResources(2, 8e9, [gpu]), lambda words: None, print
            )
        problems = [
            json.loads((one.folder / "result.json").read_text())["problem"] for one in work.jobs
        ]
    assert (tmp_path / "seen").read_text() == gpu
    assert problems == ["", "it needs 2 GPUs, and this machine has 1"]
