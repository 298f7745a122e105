"""A server or a job that goes on is no hang, although it is in the same line at each look."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_attach import attach, program, wait_for_line

REQUESTS = """
import http.client, queue, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

jobs = queue.Queue()

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        answer = queue.Queue()
        jobs.put(answer)
        answer.get()
        self.send_response(204)
        self.end_headers()

def work():
    while True:
        answer = jobs.get()
        time.sleep(1.5)
        answer.put(b"")

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=work, daemon=True).start()
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", flush=True)
while True:
    client = http.client.HTTPConnection("127.0.0.1", server.server_port)
    client.request("GET", "/")
    client.getresponse().read()
    client.close()
"""
JOBS = """
import time
from concurrent.futures import ThreadPoolExecutor

print("ready", flush=True)
with ThreadPoolExecutor(2) as pool:
    while True:
        pool.submit(time.sleep, 1.5).result()
"""


@pytest.mark.parametrize("text", [REQUESTS, JOBS], ids=["requests", "jobs"])
def test_it_advances_or_is_idle(text: str, tmp_path: Path) -> None:
    """Each request has a thread of its own, and each job a future of its own."""
    (tmp_path / "moving.py").write_text(text)
    with program("moving.py", cwd=tmp_path) as process:
        wait_for_line(process, "ready")
        done = attach(process, tmp_path, "--stall", "10")
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
