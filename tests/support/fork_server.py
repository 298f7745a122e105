"""A process that has imported modules and forks a child for each request of the tests.

Run as ``python -m tests.support.fork_server SOCKET MODULE...``. A request is one connection: a JSON
object (``argv``, ``cwd``, ``env``, and ``run``: a module, or a program text) with the descriptors of
stdin, stdout and stderr. The answer is a JSON object with the exit status and the CPU seconds of
the child and of the children that it waited for. The child is killed if the client hangs up.

A start of ``python -m reprokit`` costs 0.6 CPU-seconds and an import of torch 2 or more, and a fork
costs 0.02. Like a new process, a child has its own descriptors, directory, variables and exit status.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
import traceback
from typing import Any, NoReturn

LENGTH_BYTES = 8


def main(path: str, *modules: str) -> None:
    """Import the modules, and answer requests until stdin is closed."""
    for module in modules:
        _import(module)
    gc.freeze()  # so that a collection in a child copies no page
    assert threading.active_count() == 1, "a fork would lose a thread"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen(8)
        Server(listening).serve()


def _import(name: str) -> None:
    """Import a module, and all below it if the name ends with ``.*``."""
    module = importlib.import_module(name.removesuffix(".*"))
    if name.endswith(".*"):
        for found in pkgutil.walk_packages(module.__path__, f"{module.__name__}."):
            importlib.import_module(found.name)


class Server:
    """The children that run, and the connection that waits for each of them."""

    def __init__(self, listening: socket.socket) -> None:
        self.listening = listening
        self.clients: dict[int, socket.socket] = {}
        self.selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Fork a child for each connection."""
        woken, wakes = socket.socketpair()
        wakes.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for file in (self.listening, woken, sys.stdin):
            self.selector.register(file, selectors.EVENT_READ)
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is woken:
                    woken.recv(1 << 10)
                elif key.fileobj is self.listening:
                    self.accept()
                elif key.data:  # the client does not wait any longer
                    self.selector.unregister(key.fileobj)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(key.data, signal.SIGKILL)
            self.reap()

    def accept(self) -> None:
        """Read a request and fork its child."""
        client, _ = self.listening.accept()
        request, descriptors = _receive(client)
        if not (pid := os.fork()):
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.selector.close()
            client.close()
            self.listening.close()
            _run_child(request, descriptors)
        for number in descriptors:
            os.close(number)
        self.clients[pid] = client
        self.selector.register(client, selectors.EVENT_READ, pid)

    def reap(self) -> None:
        """Answer the clients whose child has ended."""
        while self.clients:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            client = self.clients.pop(pid)
            answer = {
                "status": os.waitstatus_to_exitcode(status),
                "cpu_s": usage.ru_utime + usage.ru_stime,
            }
            with contextlib.suppress(KeyError):
                self.selector.unregister(client)
            with contextlib.suppress(OSError):
                client.sendall(json.dumps(answer).encode())
            client.close()


def _receive(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, descriptors, _, _ = socket.recv_fds(client, LENGTH_BYTES, 3)
    left, text = int.from_bytes(head, "big"), b""
    while len(text) < left:
        text += client.recv(1 << 20)
    return json.loads(text), descriptors


def _run_child(request: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Become the process of the request, and end as Python does."""
    status = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        for descriptor in descriptors:
            if descriptor > 2:
                os.close(descriptor)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv[:] = request["argv"]
        _name_coverage()
        status = _run(request)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def _name_coverage() -> None:
    """Record the coverage of this process under the name of the test that asked for it."""
    if (coverage := sys.modules.get("coverage")) and (measured := coverage.Coverage.current()):
        measured.switch_context(os.environ.get("PYTEST_CURRENT_TEST", ""))


def _run(request: dict[str, Any]) -> int:
    """Run the module or the program of a request, and return its exit status."""
    try:
        if "module" in request:
            runpy.run_module(request["module"], run_name="__main__", alter_sys=False)
        else:
            # a file, because Dynamo and inspect read the source of functions
            sys.path.insert(0, request["cwd"])
            runpy.run_path(request["program"], run_name="__main__")
    except SystemExit as left:
        if left.code is None or isinstance(left.code, int):
            return left.code or 0
        print(left.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
