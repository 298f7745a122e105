"""Measure whether a watch reports the lock-ups of three services, and nothing else.

python -m benchmarks run service_lock_ups [--only NAME ...] [--stall 20] [--idle 60]
    [--no-lock-ups]

The services are an HTTP server with a compiled model, a server with an engine process and a worker
process, and a worker that takes jobs from a broker (benchmarks/cases/services). Each is watched
while it is idle and gets bursts of requests, and then locks up: in the compiler, in compiled code,
in a collective, and with a lost request (the worker: in a lock). The measured CPU share and memory
are those of the watch before the lock-up, with the tools that it starts. With ``--no-lock-ups``, the
services run at the same time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ...harness import quiet_environ, show_progress
from ...measurement import Measurement, add_only_option, positive_seconds
from ...results import Column, Row

COLUMNS = (
    Column("service", "service"),
    Column("reported", "lock-ups reported"),
    Column("right", "right phase and cause"),
    Column("delay", "delay, share of `--stall`", 2),
    Column("false_alarms", "false alarms"),
    Column("idle_s", "seconds of idle and bursts", 0),
    Column("cpu", "% of a core", 2),
    Column("memory", "MB"),
)
SERVICES = Path(__file__).parents[2] / "cases" / "services"
EXPECTED = {
    "compiler": ("fx-passes", ("thread-wait",)),
    "compiled_code": ("kernel-run", ("native-loop", "native-loop-holding-gil", "python-loop")),
    "collective": ("collective", ("collective",)),
    "lost": ("eager", ("unanswered-requests",)),
    "blocked": ("eager", ("lock-deadlock",)),
}
"""The phase and the causes of each lock-up."""
JOBS = {
    "http_server": ("compiler", "compiled_code", "collective", "lost"),
    "engine_worker": ("compiler", "compiled_code", "collective", "lost"),
    "queue_worker": ("compiler", "compiled_code", "collective", "blocked"),
}
REPORT_LIMIT = 3.0
"""A lock-up that is not reported after this many times ``--stall`` was missed."""


@dataclass
class Service:
    """A running service and its clients."""

    name: str
    process: subprocess.Popen[str]
    port: int
    connection: socket.socket | None = None
    """To the worker; None for a server."""

    def ask(self, job: str, waits: bool = True) -> socket.socket | None:
        """Send a job. With ``waits``, wait for its answer."""
        if self.connection is not None:
            self.connection.sendall(f"{job}\n".encode())
            if waits:
                self.connection.recv(100)
            return None
        client = socket.create_connection(("127.0.0.1", self.port))
        client.sendall(f"GET /{job} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        if waits:
            client.recv(1000)
            client.close()
            return None
        return client


@contextlib.contextmanager
def running_service(name: str) -> Iterator[Service]:
    """Start a service and wait until it is ready; at the end, kill its processes."""
    broker = socket.create_server(("127.0.0.1", 0))
    command = [sys.executable, str(SERVICES / f"{name}.py"), str(broker.getsockname()[1])]
    process = subprocess.Popen(
        command, env=quiet_environ(), stdout=subprocess.PIPE, text=True, cwd=SERVICES
    )
    try:
        if name == "queue_worker":
            connection, _ = broker.accept()
            connection.recv(100)
            yield Service(name, process, 0, connection)
        else:
            assert process.stdout is not None
            yield Service(name, process, int(process.stdout.readline()))
    finally:
        root = psutil.Process(process.pid)
        for one in (*root.children(recursive=True), root):
            with contextlib.suppress(psutil.Error):
                one.kill()
        process.wait()
        broker.close()


@dataclass
class Watched:
    """What a watch said and cost."""

    false_alarms: int
    share: float
    memory_mb: float
    delay_s: float | None = None
    is_right: bool = False


def watch_service(service: Service, job: str, stall_s: float, idle_s: float) -> Watched:
    """Watch a service while it is idle and gets bursts, and then while it locks up."""
    folder = Path(tempfile.mkdtemp(prefix="reprokit-watch-"))
    command = [sys.executable, "-m", "reprokit", "watch", str(service.process.pid)]
    command += ["--stall", f"{stall_s:g}", "--packs", "1", "--output-dir", str(folder)]
    watcher = subprocess.Popen(
        command, env=quiet_environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(5)
        own, began, began_cpu = psutil.Process(watcher.pid), time.monotonic(), _cpu_s(watcher.pid)
        peak = _send_bursts(service, own, idle_s)
        share = (_cpu_s(watcher.pid) - began_cpu) / (time.monotonic() - began)
        seen = Watched(len(_lock_ups(folder)), share, peak / 1e6)
        if job:
            _lock_up(service, job, stall_s, folder, seen)
        return seen
    finally:
        watcher.send_signal(signal.SIGTERM)
        watcher.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _send_bursts(service: Service, watcher: psutil.Process, seconds: float) -> int:
    """Send bursts of requests with idle times between them. Return the peak memory of the watch."""
    chance, end, peak = random.Random(service.name), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        for _ in range(chance.randint(1, 30)):
            service.ask("work")
            time.sleep(chance.choice([0.0, 0.05]))
        idle_until = min(end, time.monotonic() + chance.uniform(1, 40))
        while time.monotonic() < idle_until:
            peak = max(peak, watcher.memory_info().rss)
            time.sleep(0.5)
    return peak


def _lock_up(service: Service, job: str, stall_s: float, folder: Path, seen: Watched) -> None:
    before = len(_lock_ups(folder))
    began, client = time.monotonic(), service.ask(job, waits=False)
    while time.monotonic() - began < REPORT_LIMIT * stall_s + 30:
        if found := _lock_ups(folder)[before:]:
            phase, causes = EXPECTED[job]
            seen.delay_s = time.monotonic() - began
            seen.is_right = found[0]["phase"] == phase and found[0]["cause"] in causes
            if not seen.is_right:
                show_progress(f"WRONG: {found[0]['reason']}")
            break
        time.sleep(0.2)
    if client is not None:
        client.close()


def _lock_ups(folder: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError):
        rows = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
        return [row for row in rows if row["event"] == "lock-up"]
    return []


def _cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of services and the times."""
    add_only_option(parser, list(JOBS), "service")
    parser.add_argument(
        "--stall",
        type=positive_seconds,
        default=20.0,
        metavar="SECONDS",
        help="default: 20; the option of watch",
    )
    parser.add_argument(
        "--idle",
        type=positive_seconds,
        default=60.0,
        metavar="SECONDS",
        help="default: 60; idle times and bursts before each lock-up",
    )
    parser.add_argument(
        "--no-lock-ups", action="store_true", help="only the idle times and the bursts"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield one row for each service."""
    if options.no_lock_ups:
        with ThreadPoolExecutor() as pool:
            runs = [pool.submit(_watch_once, name, "", options) for name in options.only]
            for name, run in zip(options.only, runs, strict=True):
                yield _row(name, [run.result()], options)
        return
    for name in options.only:
        yield _row(name, [_watch_once(name, job, options) for job in JOBS[name]], options)


def _watch_once(name: str, job: str, options: argparse.Namespace) -> Watched:
    with running_service(name) as service:
        one = watch_service(service, job, options.stall, options.idle)
    delay = "not reported" if one.delay_s is None else f"reported after {one.delay_s:.0f} s"
    show_progress(
        f"{name}: {job or 'idle and bursts'}: {delay if job else ''} {one.false_alarms}"
        f" false alarms, {one.share:.2%} of a core, {one.memory_mb:.0f} MB"
    )
    return one


def _row(name: str, seen: list[Watched], options: argparse.Namespace) -> Row:
    delays = [one.delay_s / options.stall for one in seen if one.delay_s is not None]
    return {
        "service": name.replace("_", " "),
        "reported": f"{len(delays)} of {len(seen) * (not options.no_lock_ups)}",
        "right": sum(one.is_right for one in seen),
        "delay": max(delays, default=None),
        "false_alarms": sum(one.false_alarms for one in seen),
        "idle_s": options.idle * len(seen),
        "cpu": max(one.share for one in seen) * 100,
        "memory": round(max(one.memory_mb for one in seen)),
    }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
