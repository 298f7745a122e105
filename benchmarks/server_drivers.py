"""Start a server or job of benchmarks/cases/servers, and do the steps that make it hang."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from .cases.server_cases import FOLDER, ServerCase

READY_LIMIT_S = 150.0
STEP_LIMIT_S = 120.0
_GRADIO = (
    "import sys; from gradio_client import Client;"
    "print(Client(sys.argv[1], verbose=False).predict(sys.argv[3], api_name='/' + sys.argv[2]))"
)
_CALL = "import sys, importlib as i; getattr(i.import_module(sys.argv[1]), sys.argv[2]){}(int(sys.argv[3]))"


class NotReady(Exception):
    """The program did not start, or a step that should end did not."""


@dataclass
class RunningServer:
    """A program that runs, and its clients."""

    case: ServerCase
    python: str
    process: subprocess.Popen[bytes]
    port: int
    environ: dict[str, str]
    log: Path
    clients: list[subprocess.Popen[bytes]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def wait_until_ready(self) -> None:
        """Return when the port is open or the program has printed ``ready``."""
        end = time.monotonic() + READY_LIMIT_S
        has_port = "{port}" in self.case.fields["Run"]
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise NotReady(f"it ended: {self.log.read_text()[-600:]}")
            if "ready" in self.log.read_text(errors="replace"):
                return
            if has_port and self._is_port_open():
                return
            if not has_port and "Redis" in self.case.fields:
                time.sleep(6)
                return
            time.sleep(0.2)
        raise NotReady("it is not ready")

    def _is_port_open(self) -> bool:
        with contextlib.suppress(OSError), socket.socket() as one:
            one.settimeout(1)
            return one.connect_ex(("127.0.0.1", self.port)) == 0
        return False

    def do_steps(self) -> None:
        """Do the steps of a fault in order, and wait until the program hangs."""
        for step in self.case.steps:
            self._do_step(step)
        time.sleep(self.case.settle_s)
        if self.process.poll() is not None:
            raise NotReady(f"it ended: {self.log.read_text()[-600:]}")

    def _do_step(self, step: str) -> None:
        kind, _, rest = step.rstrip("&").partition(":")
        if kind == "sleep":
            time.sleep(float(rest))
            return
        if kind == "signal":
            self.process.send_signal(getattr(signal, f"SIG{rest}"))
            return
        client = self._client(step.rstrip("&"))
        if step.endswith("&"):
            self.clients.append(client)
        elif client.wait(STEP_LIMIT_S) != 0:
            raise NotReady(f"the step {step} failed")

    def _client(self, step: str) -> subprocess.Popen[bytes]:
        """Start a client. Its processes are those of a user of the server, and not its own."""
        url = f"http://127.0.0.1:{self.port}"
        kind, *rest = step.split(":")
        if kind == "gradio":
            command = [self.python, "-c", _GRADIO, url, *rest]
        elif kind == "python":
            is_task = rest[1] in ("report",)
            command = [self.python, "-c", _CALL.format(".delay" * is_task), *rest]
        else:
            code = "import sys, urllib.request as u; u.urlopen(sys.argv[1]).read()"
            command = [self.python, "-c", code, url + step]
        return subprocess.Popen(
            command,
            cwd=FOLDER,
            env=self.environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def keep_busy(self) -> None:
        """Do the steps of a healthy program in bursts until the run is over."""
        while not self.is_over.is_set():
            burst = [self._client(step) for step in self.case.busy_steps]
            self.clients += burst
            while any(one.poll() is None for one in burst) and not self.is_over.wait(0.2):
                pass
            self.is_over.wait(2)

    def attached_pid(self) -> int:
        """Return the process that a user would name."""
        how, _, name = self.case.fields.get("Attach", "root").partition(" ")
        if how == "child":
            for one in psutil.Process(self.process.pid).children(recursive=True):
                if any(name in word for word in one.cmdline()):
                    return one.pid
            raise NotReady(f"no child {name}")
        return self.process.pid

    def python_pids(self) -> list[int]:
        """Return the processes that a user would dump: all Python processes of the program."""
        own = psutil.Process(self.attached_pid())
        found = [own, *own.children(recursive=True)]
        if name := self.case.fields.get("Processes"):
            everywhere = psutil.Process(self.process.pid).children(recursive=True)
            found += [one for one in everywhere if name in " ".join(one.cmdline())]
        pids = []
        for one in found:
            with contextlib.suppress(psutil.Error):
                if one.pid not in pids and Path(one.exe()).name.startswith("python"):
                    pids.append(one.pid)
        return pids


@contextlib.contextmanager
def running_server(case: ServerCase, python: str) -> Iterator[RunningServer]:
    """Start the program of a case, and its Redis; at the end, kill all that it started."""
    folder = Path(tempfile.mkdtemp(prefix="server-fault-"))
    with (
        socket.create_server(("127.0.0.1", 0)) as free,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        port, redis_port = free.getsockname()[1], two.getsockname()[1]
    redis_url = f"redis://127.0.0.1:{redis_port}/0"
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("REPROKIT", "TORCH"))},
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(FOLDER),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "REDIS_URL": redis_url,
        "GRADIO_ANALYTICS_ENABLED": "False",
        "RAY_USAGE_STATS_ENABLED": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "TMPDIR": str(folder),
    }
    processes: list[subprocess.Popen[bytes]] = []
    server = None
    log = folder / "log"
    try:
        if "Redis" in case.fields:
            command = [
                "redis-server",
                "--port",
                str(redis_port),
                "--save",
                "",
                "--dir",
                str(folder),
            ]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            time.sleep(1)
        text = case.fields["Run"].format(python=python, port=port, redis=redis_url)
        with log.open("wb") as out:
            process = subprocess.Popen(
                text.split(),
                cwd=FOLDER,
                env=environ,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
            )
        processes.append(process)
        server = RunningServer(case, python, process, port, environ, log)
        yield server
    finally:
        if server is not None:
            server.is_over.set()
        _end_all([*processes, *(server.clients if server else [])])
        shutil.rmtree(folder, ignore_errors=True)


def _end_all(processes: list[subprocess.Popen[bytes]]) -> None:
    """Kill processes and all below them; those of Ray leave the tree of their driver."""
    tree = []
    for process in processes:
        if process.poll() is not None:
            continue  # its number may be that of a different process now
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(process.pid)
            tree += [*root.children(recursive=True), root]
    for one in tree:
        with contextlib.suppress(psutil.Error):
            one.kill()
    for process in processes:
        process.wait()


def has_module(python: str, module: str) -> bool:
    """Return whether an interpreter finds a module."""
    code = "import importlib.util as u, sys; sys.exit(u.find_spec(sys.argv[1]) is None)"
    return (
        subprocess.run(
            [python, "-c", code, module], check=False, stderr=subprocess.DEVNULL
        ).returncode
        == 0
    )
