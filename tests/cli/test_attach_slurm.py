"""On each node of a Slurm job, ``attach`` writes a pack, and ``merge`` names the odd rank."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import slurm
from tests.support.environments import ROOT
from tests.support.reprokit_calls import reprokit

NODES = ("node1", "node2")
TRAIN = """
import datetime, os, sys, time
import torch, torch.distributed as dist

rank = int(os.environ["SLURM_PROCID"])
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=rank, world_size=2,
    timeout=datetime.timedelta(hours=1))
open(f"{sys.argv[1]}/ready{rank}", "w").close()
if rank == 1:
    def load_data():
        time.sleep(10_000)
    load_data()
dist.all_reduce(torch.ones(4))
"""
BATCH = """#!/bin/bash
attach() {{
    {attach}
}}
trap attach USR1
srun --ntasks-per-node=1 {python} train.py "$PWD" &
wait $!
wait
"""


@pytest.fixture(scope="module")
def two_nodes(request: pytest.FixtureRequest) -> Iterator[slurm.Cluster]:
    with slurm.cluster(request.config, NODES) as started:
        yield started


@pytest.mark.real("it starts a Slurm of two nodes, and a rank and an attachment on each")
@pytest.mark.slurm
def test_a_job_of_two_nodes_is_attached_to_before_it_is_killed(
    two_nodes: slurm.Cluster, tmp_path: Path
) -> None:
    """The batch script of the tutorial: its trap runs attach on each node."""
    (tmp_path / "train.py").write_text(TRAIN)
    words = f"{sys.executable} -m reprokit attach --slurm-job $SLURM_JOB_ID --stall 5 --output-dir"
    folder = shlex.quote(str(tmp_path))
    inside = f'cd {shlex.quote(str(ROOT))}; {words} {folder}/hang/"$SLURMD_NODENAME"'
    attach = (
        f"srun --overlap --ntasks-per-node=1 sh -c {shlex.quote(inside)} > attach.txt 2>&1;"
        " touch done"
    )
    script = tmp_path / "job.sh"
    script.write_text(BATCH.format(attach=attach, python=sys.executable))
    job = two_nodes.command(
        "sbatch", "--parsable", "-N2", f"--chdir={tmp_path}", "--time=30", str(script)
    ).strip()
    slurm.wait_for(lambda: all((tmp_path / f"ready{rank}").exists() for rank in (0, 1)), 180)
    two_nodes.command("scancel", "--signal=USR1", "--batch", job)
    slurm.wait_for((tmp_path / "done").exists, 180)
    told = (tmp_path / "attach.txt").read_text()
    assert {path.name for path in (tmp_path / "hang").iterdir()} == set(NODES), told
    state = two_nodes.command("squeue", "-h", "-j", job, "-o", "%t").strip()
    two_nodes.command("scancel", job)
    assert state == "R"
    merged = reprokit("merge", tmp_path / "hang")
    assert merged.status == 1, merged.out + told
    assert "in load_data" in merged.out.splitlines()[0], merged.out
    assert "1 rank waits in all_reduce" in merged.out.splitlines()[0]
    assert merged.out.splitlines()[1].startswith("odd        1: ")
