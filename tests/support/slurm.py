"""A real Slurm cluster on this machine, of one node or of several."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.support.system_packages import require_programs

CONF = """
ClusterName=reprokit
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmctldPort={ctld}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,requeue_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmdTimeout=10
KillWait=2
MinJobAge=60
MaxArraySize=4
GresTypes=gpu
{nodes}
PartitionName=night Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
"""


class Cluster:
    """The daemons of a cluster, and the commands that tests call."""

    def __init__(self, folder: Path, nodes: Sequence[str] = ("localhost",)) -> None:
        self.folder, self._nodes = folder, nodes
        self.environ = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> None:
        """Start daemons in the foreground, so that they end with this process."""
        words = {
            "munged": [
                "munged",
                "--foreground",
                "--force",
                f"--socket={self.folder}/munge.socket",
                f"--key-file={self.folder}/munge.key",
                f"--pid-file={self.folder}/munged.pid",
                f"--log-file={self.folder}/munged.log",
                f"--seed-file={self.folder}/munged.seed",
            ],
            "slurmctld": ["slurmctld", "-D", "-f", str(self.folder / "slurm.conf")],
        }
        for node in self._nodes:
            command = ["slurmd", "-D", "-N", node, "-f", str(self.folder / "slurm.conf")]
            words["slurmd" if node == self._nodes[0] else f"slurmd {node}"] = command
        for name in names:
            with open(self.folder / f"{name}.out", "ab") as log:
                environ = {**os.environ, **self.environ}
                self._daemons[name] = subprocess.Popen(
                    words[name], stdout=log, stderr=log, env=environ, start_new_session=True
                )
            if name == "munged":
                wait_for(lambda: (self.folder / "munge.socket").exists())

    def stop_controller(self) -> None:
        """Stop the controller. If it were killed, it would forget the jobs that it has just started,
        and drain the node.
        """
        child = self._daemons.pop("slurmctld")
        child.terminate()
        child.wait(60)

    def kill(self, name: str) -> None:
        """Kill a daemon with all its jobs, as a failing machine does."""
        child = self._daemons.pop(name)
        below = self._steps() if name == "slurmd" else []
        for process in [psutil.Process(child.pid), *below]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        child.wait()

    def command(self, *words: str) -> str:
        """Call one of Slurm's commands. Return its output and its errors."""
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            env={**os.environ, **self.environ},
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def wait_until_idle(self) -> None:
        rows = "\n".join(["idle"] * len(self._nodes))
        wait_for(
            lambda: self.command("sinfo", "-h", "-N", "-p", "night", "-o", "%t").strip() == rows
        )

    def stop(self) -> None:
        self.command("scancel", "--user=root", "--signal=KILL", "--full")
        steps = self._steps()
        for child in reversed([*self._daemons.values()]):
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for process in {*steps, *self._steps()}:
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _steps(self) -> list[psutil.Process]:
        """Return the step daemons of this cluster and their processes. A step daemon is detached and
        outlives slurmd.

        Its title has overwritten its environment, so it is recognized by the log that it has open.
        """
        steps: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name() == "slurmstepd" and any(
                    Path(file.path).is_relative_to(self.folder) for file in process.open_files()
                ):
                    steps += [process, *process.children(recursive=True)]
        return steps


def wait_for(is_true: Callable[[], object], timeout_s: float = 90.0) -> None:
    """Wait until ``is_true()`` holds, and fail after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end, f"still not true after {timeout_s:.0f} s"
        time.sleep(0.2)


def _port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def cluster(config: pytest.Config, nodes: Sequence[str] = ("localhost",)) -> Iterator[Cluster]:
    """Run a cluster of this machine alone, with its own ports, keys and folders.

    Several nodes have one daemon each, and share the processors.
    """
    require_programs(config, "slurm", ("slurmctld", "slurmd", "munged"), ("slurm-wlm", "munge"))
    if os.geteuid() != 0:
        pytest.skip("only root can start the daemons of Slurm")
    folder = Path(tempfile.mkdtemp(prefix="reprokit-slurm-"))
    folder.chmod(0o755)
    for name in ("state", *(f"spool-{node}" for node in nodes)):
        (folder / name).mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "gpu").write_bytes(b"")  # a device file that jobs can reserve
    (folder / "gres.conf").write_text(f"NodeName={nodes[0]} Name=gpu File={folder}/gpu\n")
    rows = []
    for node in nodes:
        gpu = "Gres=gpu:1 " if node == nodes[0] else ""
        memory_mb = (psutil.virtual_memory().total >> 20) // len(nodes)
        rows.append(
            f"NodeName={node} NodeHostname=localhost Port={_port()} CPUs={os.cpu_count()}"
            f" RealMemory={memory_mb} {gpu}State=UNKNOWN"
        )
    conf = CONF.format(
        folder=folder,
        ctld=_port(),
        nodes="\n".join(rows),
    )
    (folder / "slurm.conf").write_text(conf)
    started = Cluster(folder, nodes)
    try:
        started.start("munged", "slurmctld", "slurmd", *(f"slurmd {n}" for n in nodes[1:]))
        started.wait_until_idle()
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder, ignore_errors=True)
