"""One instrumented execution of a target in a child process, under a deadline."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil

from ..core.journal import decode
from ..core.records import Missing
from . import files, stacks, tree, watch
from .target import Target

POLL_S = 0.05
DRAIN_S = 2.0
"""How long to wait for the rest of the output after the target's end."""


@dataclass(frozen=True)
class Request:
    """What to run and how; everything that the user may choose."""

    target: Target
    python: str = sys.executable
    """Interpreter for a factory target; a command names its own."""
    deadline_s: float = 600.0
    knobs: dict[str, Any] = field(default_factory=dict)
    compile: dict[str, Any] = field(default_factory=dict)
    train: bool = False
    device: str | None = None
    weights: str = "auto"
    logs: tuple[str, ...] = ()
    has_trace: bool = True
    compile_it: bool = True
    """False runs the same target without torch.compile."""


@dataclass(frozen=True)
class Outcome:
    """How the run ended, beside what it left in its directory."""

    exit_status: int | None
    is_timed_out: bool
    is_interrupted: bool
    seconds: float
    cpu_s: float
    peak_rss_bytes: int
    started: float
    ended: float
    main_pid: int
    dumps: stacks.Stacks | None
    oom_evidence: str
    missing: tuple[Missing, ...]


@dataclass
class Progress:
    """What a screen may show while the target runs."""

    elapsed_s: float
    rss_bytes: int
    phase_event: str
    position: str


Show = Callable[[Progress], None]


def run(
    request: Request, run_path: Path, show: Show | None = None, echo: tuple[IO[bytes], IO[bytes]] | None = None
) -> Outcome:
    """Run the target to its end, its deadline or an interrupt; afterwards its whole tree is gone.

    ``run_path`` must have the folders of a run directory. ``echo`` takes the target's stdout and stderr
    live, beside the copies in ``logs/``.
    """
    run_id = uuid.uuid4().hex
    environ, missing = _environment(request, run_path, run_id)
    command = _command(request, run_path)
    files.write_json(
        run_path / "run.json", {**describe(request), "argv": command, "started": time.time(), "run_id": run_id}
    )
    started, began = time.time(), time.monotonic()
    child = subprocess.Popen(
        command,
        env=environ,
        stdin=None if request.target.kind == "command" else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    watcher = watch.Watch(run_path / "samples.csv", child.pid)
    pumps = _pump(child, run_path / "logs", echo)
    guardian = _start_guardian(run_id, child.pid)
    oom_before = _oom_kills()
    is_timed_out = is_interrupted = False
    dumped: stacks.Stacks | None = None
    status: int | None = None
    usage = None
    decided: float | None = None
    try:
        with _interruptible():
            follower = _Follower(run_path / "journal")
            try:
                while True:
                    pid, raw, used = os.wait4(child.pid, os.WNOHANG)
                    if pid:
                        status, usage = os.waitstatus_to_exitcode(raw), used
                        break
                    watcher.tick()
                    elapsed = time.monotonic() - began
                    if elapsed >= request.deadline_s:
                        is_timed_out = True
                        break
                    if show:
                        show(Progress(elapsed, watcher.samples.last_rss_bytes, *follower.look()))
                    time.sleep(POLL_S)
            except KeyboardInterrupt:
                is_interrupted = True
        decided = time.time()
        if status is None:
            # A second Ctrl-C here ends the dump, never the clean-up below.
            with contextlib.suppress(KeyboardInterrupt), _interruptible():
                dumped = stacks.take(run_path, child.pid, _can_dump(run_path))
                missing += [Missing("stacks", p) for p in dumped.problems]
    finally:
        ended = decided or time.time()
        stubborn = tree.kill_all(child.pid, run_id)
        if status is None:
            with contextlib.suppress(ChildProcessError):
                _, raw, usage = os.wait4(child.pid, 0 if child.pid not in stubborn else os.WNOHANG)
                if not (is_timed_out or is_interrupted):
                    status = os.waitstatus_to_exitcode(raw)
        child.returncode = status if status is not None else -signal.SIGKILL
        _dismiss(guardian)
        for pump in pumps:
            pump.join(DRAIN_S)
        watcher.close()
        # The compiler's private cache can be hundreds of megabytes and proves nothing that the trace does not.
        shutil.rmtree(run_path / "cache", ignore_errors=True)
    if stubborn:
        missing.append(
            Missing("clean end", f"processes {stubborn} are in an uninterruptible wait and could not be ended")
        )
    outcome = Outcome(
        exit_status=status,
        is_timed_out=is_timed_out,
        is_interrupted=is_interrupted,
        seconds=round(ended - started, 3),
        cpu_s=round(usage.ru_utime + usage.ru_stime, 3) if usage else 0.0,
        peak_rss_bytes=max(watcher.samples.peak_rss_bytes, usage.ru_maxrss * 1024 if usage else 0),
        started=started,
        ended=ended,
        main_pid=child.pid,
        dumps=dumped,
        oom_evidence=_oom_evidence(oom_before, status, watcher.samples),
        missing=tuple(missing),
    )
    ending = {
        "exit_status": status,
        "is_timed_out": is_timed_out,
        "is_interrupted": is_interrupted,
        "seconds": outcome.seconds,
        "cpu_s": outcome.cpu_s,
        "peak_rss_bytes": outcome.peak_rss_bytes,
        "main_pid": child.pid,
        "ended": ended,
    }
    with contextlib.suppress(OSError):
        files.write_json(
            run_path / "run.json",
            {**describe(request), "argv": command, "started": started, "run_id": run_id, **ending},
        )
    return outcome


def describe(request: Request) -> dict[str, Any]:
    """The request as JSON values."""
    target = request.target
    return {
        "target": {"kind": target.kind, "place": target.place, "name": target.name, "command": list(target.command)},
        "python": request.python,
        "deadline_s": request.deadline_s,
        "knobs": {k: v for k, v in request.knobs.items() if v is not None},
        "compile": request.compile,
        "train": request.train,
        "device": request.device,
        "weights": request.weights,
        "compile_it": request.compile_it,
        "trace": request.has_trace,
    }


def agent_folder(place: Path) -> Path:
    """Copy core and agent, and nothing else of reprokit, into a folder for the target's path alone."""
    folder = place / "agent"
    package = folder / "_reprokit"
    source = Path(__file__).resolve().parent.parent
    if not package.exists():
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        for name in ("core", "agent"):
            shutil.copytree(source / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
        (package / "agent" / "sitecustomize.py").rename(folder / "sitecustomize.py")
    return folder


def _command(request: Request, run_path: Path) -> list[str]:
    if request.target.kind == "command":
        return list(request.target.command)
    target = request.target
    spec = {**describe(request), "kind": target.kind, "place": target.place, "name": target.name, "cwd": os.getcwd()}
    files.write_json(run_path / "spec.json", spec)
    return [request.python, "-m", "_reprokit.agent", "run", str(run_path / "spec.json")]


def _environment(request: Request, run_path: Path, run_id: str) -> tuple[dict[str, str], list[Missing]]:
    """The target's environment: the user's own, plus our folder on PYTHONPATH and where to write."""
    missing: list[Missing] = []
    environ = dict(os.environ)
    path = [str(agent_folder(run_path)), *(p for p in (environ.get("PYTHONPATH"),) if p)]
    environ["PYTHONPATH"] = os.pathsep.join(path)
    environ["REPROKIT_RUN_DIR"] = str(run_path)
    environ["REPROKIT_WATCHDOG_PID"] = str(os.getpid())
    environ[tree.RUN_ID] = run_id
    environ["REPROKIT_LOGS"] = ",".join(request.logs)
    environ.setdefault("PYTHONUNBUFFERED", "1")  # output that a crash would lose is evidence
    # A warm cache hides the compile that fails, and a killed compile poisons the cache it wrote to.
    environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(run_path / "cache"))
    if not request.has_trace:
        missing.append(Missing("TORCH_TRACE", "left out by --no-trace"))
    elif environ.get("TORCH_TRACE"):
        missing.append(Missing("TORCH_TRACE", f"the target's environment already sends it to {environ['TORCH_TRACE']}"))
    else:
        environ["TORCH_TRACE"] = str(run_path / "trace")
    if not request.compile_it:
        environ.pop("TORCH_TRACE", None)
    if environ.get("TORCH_TRACE") == "":
        del environ["TORCH_TRACE"]  # an empty one is an error to torch
    return environ, missing


def _pump(
    child: subprocess.Popen[bytes], logs: Path, echo: tuple[IO[bytes], IO[bytes]] | None
) -> list[threading.Thread]:
    threads = []
    for number, (name, pipe) in enumerate((("stdout", child.stdout), ("stderr", child.stderr))):
        live = echo[number] if echo else None
        thread = threading.Thread(
            target=_copy, args=(pipe, logs / f"{name}.txt", live), daemon=True, name=f"pump-{name}"
        )
        thread.start()
        threads.append(thread)
    return threads


def _copy(pipe: IO[bytes], path: Path, live: IO[bytes] | None) -> None:
    """Copy a stream to its file and to the screen; a full disk or a closed screen must not stop the target."""
    file: IO[bytes] | None = None
    with contextlib.suppress(OSError):
        file = path.open("ab", buffering=0)
    while True:
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except (OSError, ValueError):
            break
        if not data:
            break
        if file is not None:
            try:
                file.write(data)
            except OSError:
                file = None
        if live is not None:
            try:
                live.write(data)
                live.flush()
            except (OSError, ValueError):
                live = None
    if file is not None:
        with contextlib.suppress(OSError):
            file.close()


@contextlib.contextmanager
def _interruptible() -> Any:
    """SIGTERM and SIGHUP end a run as Ctrl-C does: with a pack of what there is."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.signal(n, interrupt) for n in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_guardian(run_id: str, group: int) -> subprocess.Popen[bytes] | None:
    script = Path(__file__).with_name("guardian.py")
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), run_id, str(group)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None


def _dismiss(guardian: subprocess.Popen[bytes] | None) -> None:
    if guardian is None or guardian.stdin is None:
        return
    with contextlib.suppress(OSError):
        guardian.stdin.write(b"x")
        guardian.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        guardian.wait(2)


class _Follower:
    """Reads the newest journal as it grows, for the screen."""

    EVERY_S = 0.5

    def __init__(self, folder: Path) -> None:
        self._folder, self._next = folder, 0.0
        self._offsets: dict[Path, int] = {}
        self._open: list[str] = []
        self._position = ""

    def look(self) -> tuple[str, str]:
        """The innermost open event and the line or node at work."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self.EVERY_S
            with contextlib.suppress(OSError):
                for path in self._folder.iterdir():
                    self._read(path)
        return (self._open[-1] if self._open else ""), self._position

    def _read(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            data = file.read(1 << 22)
        whole = data.rfind(b"\n") + 1
        self._offsets[path] = self._offsets.get(path, 0) + whole
        for event in decode(data[:whole])[0]:
            name = str(event.get("name", ""))
            if event["ev"] == "begin":
                self._open.append(name)
            elif event["ev"] == "end" and name in self._open:
                del self._open[len(self._open) - 1 - self._open[::-1].index(name) :]
            elif event["ev"] == "progress":
                self._position = str(event.get("where", ""))


def _can_dump(run_path: Path) -> frozenset[int]:
    """Processes whose journal says that faulthandler listens to SIGUSR2."""
    found = set()
    for path in (run_path / "journal").glob("*.jsonl"):
        events, _ = decode(files.read_text(path, 1 << 16).encode())
        if any(e["ev"] == "process" and e.get("can_dump") for e in events) and path.stem.isdigit():
            found.add(int(path.stem))
    return frozenset(found)


def _oom_kills() -> dict[str, int]:
    """How many times the out-of-memory killer has struck, by the counters that we may read."""
    counts = {}
    for path, pattern in (("/proc/vmstat", r"^oom_kill (\d+)"), ("/sys/fs/cgroup/memory.events", r"^oom_kill (\d+)")):
        with contextlib.suppress(OSError), open(path) as file:
            if found := re.search(pattern, file.read(), re.MULTILINE):
                counts[path] = int(found.group(1))
    return counts


def _oom_evidence(before: dict[str, int], status: int | None, samples: watch.Samples) -> str:
    """Say what points at the killer; only a SIGKILL that is not ours can be its work."""
    if status not in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return ""
    for path, count in _oom_kills().items():
        if count > before.get(path, count):
            return f"oom_kill in {path} rose from {before[path]} to {count} during the run"
    total = psutil.virtual_memory().total
    if samples.least_available_bytes < 0.03 * total and samples.peak_rss_bytes > 0.5 * total:
        return f"the target held {samples.peak_rss_bytes / 1e9:.1f} GB and {samples.least_available_bytes / 1e9:.2f} GB were left before SIGKILL"
    return ""


def read_run(run_path: Path) -> dict[str, Any]:
    """Read ``run.json`` back; empty when it is missing or broken."""
    with contextlib.suppress(ValueError):
        value = json.loads(files.read_text(run_path / "run.json") or "{}")
        if isinstance(value, dict):
            return value
    return {}
