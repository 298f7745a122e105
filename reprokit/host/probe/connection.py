"""The pipes between the client of the probe server and the server."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from typing import Any

from reprokit.core.shared.contract.probe_messages import ProbeRequest
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.system import interrupts

SHARED_POLL_S = 0.005
"""Seconds for which one of several threads waits for a message of any probe."""


class ServerConnection:
    """The pipes of a server that runs, shared by the threads that wait for a probe."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child, self.probes_cpu_s = child, 0.0
        self._rest, self._lock = b"", threading.Lock()
        self._messages: dict[int | None, list[dict[str, Any]]] = {}

    def send(self, request: ProbeRequest) -> None:
        """Send a request. Raises OSError if the server has ended."""
        assert self.child.stdin is not None
        with interrupts.blocked(), self._lock:
            self.child.stdin.write(json.dumps(to_json(request)).encode() + b"\n")
            self.child.stdin.flush()

    def poll(self, wait_s: float, number: int | None) -> dict[str, Any]:
        """Return a message about probe ``number`` that arrives within ``wait_s``, or an empty
        object. Raises EOFError if the server has ended.
        """
        ends = time.monotonic() + wait_s
        while True:
            with interrupts.blocked(), self._lock:  # a message must not be lost
                if not self._messages.get(number):
                    left_s = max(ends - time.monotonic(), 0.0)
                    self._receive(min(left_s, SHARED_POLL_S))
                if waiting := self._messages.get(number):
                    return waiting.pop(0)
            if time.monotonic() >= ends:
                return {}

    def _receive(self, wait_s: float) -> None:
        assert self.child.stdout is not None
        if not select.select([self.child.stdout], [], [], wait_s)[0]:
            return
        data = os.read(self.child.stdout.fileno(), 1 << 16)
        if not data:
            raise EOFError
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            value = json.loads(line)
            if isinstance(value, dict):
                self._messages.setdefault(value.get("id"), []).append(value)
