"""Child processes of a server that has imported what they need: ``python -m reprokit`` and programs
that use torch.

Each worker of pytest has at most one server of each kind. A test of how a process starts, or of what
it does with signals and limits, starts a process of its own with ``subprocess``.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from tests.support import cpu_times, requirements
from tests.support.environments import ROOT, SITE, clean_environ
from tests.support.fork_server import LENGTH_BYTES

COMMAND_LINE = (
    *("reprokit.core.*", "reprokit.host.*", "reprokit.cli.*"),
    *("rich.table", "tests.support.warm_command_line"),
)
TORCH = ("torch", "torch._dynamo", "torch._inductor.compile_fx", "torch._functorch.aot_autograd")
START_LIMIT_S = 300
FOLDER = tempfile.gettempdir()
"""Not the temporary folder of a test: its path may be too long for a socket."""


def run_command_line(
    words: Sequence[str],
    cwd: Path | None,
    env: Mapping[str, str],
    timeout_s: float,
    module: str = "reprokit",
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE WORDS``."""
    argv = [str(ROOT / "reprokit" / "__main__.py"), *words]
    return _server("command line").run("module", module, argv, cwd, env, timeout_s)


def run_torch_program(
    program: str | Path, *words: str, cwd: Path, timeout_s: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the text or the file of a program in a process that has imported the compiler of torch.

    A text becomes a file in ``cwd``. The variables of torch itself have no effect on what is
    imported, except those that it reads later.
    """
    if requirements.REFUSES_TORCH in os.environ:
        pytest.fail("a test that uses this needs the marker 'real'")
    if isinstance(program, str):
        text, program = program, cwd / "program.py"
        program.write_text(text)
    argv = [str(program), *words]
    environ = clean_environ(**variables)
    return _server("torch").run("program", str(program), argv, cwd, environ, timeout_s)


class Server:
    """A server process and the folder of its socket."""

    def __init__(self, modules: Sequence[str], environ: Mapping[str, str]) -> None:
        folder = tempfile.TemporaryDirectory(prefix="reprokit-server-", dir=FOLDER)
        self.path = os.path.join(folder.name, "socket")
        command = [sys.executable, "-m", "tests.support.fork_server", self.path, *modules]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, env=dict(environ))
        atexit.register(self.end)
        self.folder = folder

    def end(self) -> None:
        """End the server and wait for it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        self.folder.cleanup()

    def run(
        self,
        kind: str,
        what: str,
        argv: Sequence[str],
        cwd: Path | None,
        env: Mapping[str, str],
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run a module or a program in a child, and return what it printed."""
        request = {kind: what, "argv": argv, "cwd": str(cwd or os.getcwd()), "env": {**env}}
        text = json.dumps(request).encode()
        with (
            self._connect() as client,
            open(os.devnull, "rb") as nothing,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            descriptors = [file.fileno() for file in (nothing, out, err)]
            socket.send_fds(client, [len(text).to_bytes(LENGTH_BYTES, "big")], descriptors)
            client.sendall(text)
            client.settimeout(timeout_s)
            answer = json.loads(client.recv(1 << 10))
            cpu_times.add_cpu_seconds(answer["cpu_s"])
            return subprocess.CompletedProcess(
                list(argv), answer["status"], _text_of(out), _text_of(err)
            )

    def _connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        for _ in range(START_LIMIT_S * 20):
            try:
                client.connect(self.path)
                return client
            except OSError:
                try:
                    self.process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
                break
        raise AssertionError(f"the server ended or did not start: {self.process.args}")


@functools.cache
def _server(name: str) -> Server:
    if name == "torch":
        # with Triton, Inductor starts its compile workers, which a fork would not have
        path = os.pathsep.join([str(SITE), str(ROOT)])
        return Server(TORCH, clean_environ(PYTHONPATH=path, TESTS_HIDE_TRITON="1"))
    return Server(COMMAND_LINE, {k: v for k, v in os.environ.items() if not k.startswith("TESTS_")})


def _text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()
