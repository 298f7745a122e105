"""Measure how much slower a server answers while it is watched, and while attach reads it.

python -m benchmarks run server_latency [--seconds 60] [--rate 50] [--only HOW ...]

A server with a thread for each request computes for some milliseconds. A client sends requests at a
fixed rate and measures the time to each answer: of the plain server, under ``reprokit watch PID``,
and while ``reprokit attach PID`` runs again and again. All three take turns, so that the load of the
machine is the same for all.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator

from ...harness import REPROKIT, quiet_environ, show_progress
from ...measurement import Measurement, add_only_option, positive_seconds
from ...results import Column, Row

COLUMNS = (
    Column("how", "server"),
    Column("requests", "requests"),
    Column("p50", "p50, ms", 2),
    Column("p99", "p99, ms", 2),
    Column("ratio_p50", "p50 beside plain", 2),
    Column("ratio_p99", "p99 beside plain", 2),
)
HOWS = ("plain", "watched", "attached")
TURN_S = 10.0
SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass
    def do_GET(self):
        body = str(sum(number * number for number in range(20_000))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the time, the rate and the choice of states."""
    parser.add_argument(
        "--seconds", type=positive_seconds, default=60.0, help="of requests in each state"
    )
    parser.add_argument("--rate", type=float, default=50.0, help="requests in a second")
    add_only_option(parser, HOWS, "state")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each state."""
    times: dict[str, list[float]] = {how: [] for how in options.only}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, env=quiet_environ()
    ) as server:
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}/"
            send_requests(url, options.rate, 3)
            for turn in range(max(round(options.seconds / TURN_S), 1)):
                for how in options.only:
                    with state(how, server.pid):
                        times[how] += send_requests(url, options.rate, TURN_S)
                    show_progress(f"turn {turn + 1}, {how}: {len(times[how])} requests")
        finally:
            server.kill()
    base = times.get("plain") or [float("nan")]
    for how, row in times.items():
        p50, p99 = percentile(row, 50), percentile(row, 99)
        yield {
            "how": how,
            "requests": len(row),
            "p50": p50 * 1e3,
            "p99": p99 * 1e3,
            "ratio_p50": p50 / percentile(base, 50),
            "ratio_p99": p99 / percentile(base, 99),
        }


def percentile(times: list[float], percent: int) -> float:
    """Return a percentile of the times."""
    return statistics.quantiles(times, n=100)[percent - 1] if len(times) > 1 else times[0]


def send_requests(url: str, rate: float, seconds: float) -> list[float]:
    """Send requests at a fixed rate, and return the time from when each was due to its answer."""
    times: list[float] = []

    def send(due: float) -> None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=30) as answer:
            answer.read()
            times.append(time.perf_counter() - due)

    began, threads = time.perf_counter(), []
    for number in range(round(rate * seconds)):
        due = began + number / rate
        time.sleep(max(due - time.perf_counter(), 0.0))
        thread = threading.Thread(target=send, args=(due,))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    return times


@contextlib.contextmanager
def state(how: str, pid: int) -> Iterator[None]:
    """Keep the server in one of the states."""
    if how == "plain":
        yield
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        words = [*map(str, REPROKIT), "watch", str(pid), "--output-dir", f"{folder}/out"]
        if how == "attached":
            words = [*map(str, REPROKIT), "attach", str(pid), "--observe", "600"]
            words += ["--output-dir", f"{folder}/out"]
        with subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=quiet_environ()
        ) as tool:
            time.sleep(0 if how == "attached" else 3)
            try:
                yield
            finally:
                tool.terminate()
                tool.wait(60)


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
