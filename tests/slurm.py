"""A real Slurm cluster of one node on this machine, installed by the tests' own set-up where they
may.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

CONF = """
ClusterName=reprokit
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
SlurmctldPort={ctld}
SlurmdPort={slurmd}
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
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
NodeName=localhost CPUs={cpus} RealMemory={memory_mb} Gres=gpu:1 State=UNKNOWN
PartitionName=night Nodes=localhost Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=localhost MaxTime=INFINITE State=UP PriorityTier=10
"""


class Cluster:
    """Its daemons, and what is done to them."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.environ = {"SLURM_CONF": str(place / "slurm.conf")}
        self._own: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, *names: str) -> None:
        """Start daemons in the foreground, so that they end with us."""
        words = {
            "munged": [
                "munged",
                "--foreground",
                "--force",
                f"--socket={self.place}/munge.socket",
                f"--key-file={self.place}/munge.key",
                f"--pid-file={self.place}/munged.pid",
                f"--log-file={self.place}/munged.log",
                f"--seed-file={self.place}/munged.seed",
            ],
            "slurmctld": ["slurmctld", "-D", "-f", str(self.place / "slurm.conf")],
            "slurmd": ["slurmd", "-D", "-N", "localhost", "-f", str(self.place / "slurm.conf")],
        }
        for name in names:
            with open(self.place / f"{name}.out", "ab") as log:
                environ = {**os.environ, **self.environ}
                self._own[name] = subprocess.Popen(
                    words[name], stdout=log, stderr=log, env=environ, start_new_session=True
                )
            if name == "munged":
                wait_for(lambda: (self.place / "munge.socket").exists())

    def unplug(self) -> None:
        """Take the controller away; killed, it would forget what it has just started, and drain the
        node for it.
        """
        child = self._own.pop("slurmctld")
        child.terminate()
        child.wait(60)

    def kill(self, name: str) -> None:
        """End a daemon as a failing machine does, with all that it runs."""
        child = self._own.pop(name)
        below = self._steps() if name == "slurmd" else []
        for process in [psutil.Process(child.pid), *below]:
            with contextlib.suppress(psutil.Error):
                process.kill()
        child.wait()

    def ask(self, *words: str) -> str:
        """Call one of Slurm's commands."""
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
        wait_for(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%t"))

    def stop(self) -> None:
        self.ask("scancel", "--user=root", "--signal=KILL", "--full")
        steps = self._steps()
        for child in reversed([*self._own.values()]):
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
        """What runs jobs of this cluster, and their processes: a step's daemon is nobody's child
        and outlives its own.

        Its title has overwritten its environment, so that only the log that it holds open says
        whose it is.
        """
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name() == "slurmstepd" and any(
                    Path(file.path).is_relative_to(self.place) for file in process.open_files()
                ):
                    found += [process, *process.children(recursive=True)]
        return found


def wait_for(is_true: object, timeout_s: float = 90.0) -> None:
    """Wait for something that has to come."""
    assert callable(is_true)
    end = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)


def install() -> None:
    """Install Debian's packages as root; skips the test with a reason otherwise."""
    programs = ("slurmctld", "slurmd", "munged")
    with open(Path(tempfile.gettempdir()) / "reprokit-tests-slurm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(map(shutil.which, programs)) and os.geteuid() == 0 and shutil.which("apt-get"):
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            subprocess.run(["apt-get", "update", "-qq"], check=False, capture_output=True)
            words = [
                "apt-get",
                "install",
                "-y",
                "-qq",
                "--no-install-recommends",
                "slurm-wlm",
                "munge",
            ]
            subprocess.run(words, check=False, capture_output=True, env=environ)
    if not all(map(shutil.which, programs)) or os.geteuid() != 0:
        pytest.skip(
            "Debian's slurm-wlm and munge are not here and could not be installed, or this is not"
            " root"
        )


def _port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return int(own.getsockname()[1])


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster of this machine alone, with ports, keys and folders of its own."""
    install()
    place = Path(tempfile.mkdtemp(prefix="reprokit-slurm-"))
    place.chmod(0o755)
    for name in ("state", "spool"):
        (place / name).mkdir()
    (place / "munge.key").write_bytes(os.urandom(128))
    (place / "munge.key").chmod(0o600)
    (place / "gpu").write_bytes(b"")  # a device that can be held, and nothing else
    (place / "gres.conf").write_text(f"NodeName=localhost Name=gpu File={place}/gpu\n")
    conf = CONF.format(
        place=place,
        ctld=_port(),
        slurmd=_port(),
        cpus=os.cpu_count(),
        memory_mb=psutil.virtual_memory().total >> 20,
    )
    (place / "slurm.conf").write_text(conf)
    own = Cluster(place)
    try:
        own.start("munged", "slurmctld", "slurmd")
        own.wait_until_idle()
        yield own
    finally:
        own.stop()
        shutil.rmtree(place, ignore_errors=True)
