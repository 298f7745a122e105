"""The part of the pytest plugin that is in pytest's main process.

It ends tests that hang, collects the failures, captures each of them after the last test, and names
the packs in the summary. Outcomes and the exit code stay pytest's own.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprokit.integrations import captured_test, session_settings
from reprokit.integrations.captured_test import FailedTest, TestCapture

LOOK_EVERY_S = 0.5


class WatchedSession:
    """A session whose failures are captured at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.folder = tempfile.mkdtemp(prefix="reprokit-pytest-")
        """Where each worker notes the test that it runs."""
        self.is_in_process = not (config.option.dist != "no" and config.option.tx)
        self._limit_s = session_settings.time_limit_s(config)
        self._max_captures = session_settings.max_captures(config)
        self._options = _capture_options(config)
        self._failed: dict[str, FailedTest] = {}
        self._hung: dict[str, dict[str, Any]] = {}
        """Node id -> the note of a test that was ended after its limit."""
        self._captures: list[TestCapture] = []
        self._left_out: list[str] = []
        self._why_left_out = ""
        self._is_interrupted = False
        self._is_over = threading.Event()
        self._collected: set[str] = set()
        self._output = _output_folder(config)
        config.add_cleanup(self._end)
        if not self.is_in_process:
            threading.Thread(target=self._watch, name="reprokit", daemon=True).start()

    def pytest_report_header(self) -> str:
        """Say where the tests run."""
        if self.is_in_process:
            return "reprokit: tests run in this process, so a crash or a hang ends the session"
        return f"reprokit: a test that runs longer than {self._limit_s:g} s is ended and captured"

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker of xdist where it notes its test."""
        node.workerinput["reprokit_folder"] = self.folder

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Note that a worker survived the collection."""
        self._collected.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """End the session if a worker crashes while it collects: a new worker would crash too."""
        is_crash = error is not None and error != "keyboard-interrupt"
        if is_crash and node.gateway.id not in self._collected:
            pytest.exit(
                "reprokit: a worker process crashed while it collected the tests; to capture this,"
                " run: reprokit capture -- python -m pytest --collect-only",
                returncode=pytest.ExitCode.INTERNAL_ERROR,
            )

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Collect a test that ended its worker, or that :meth:`_watch` ended."""
        path = self._note_path(report)
        note = self._hung.get(crashitem) or _read_note(path) or {}
        with contextlib.suppress(OSError):  # the worker is dead, and its pid is free
            path.unlink()
        if crashitem in self._hung:
            report.longrepr = (
                f"The test did not end within {note['limit_s']:g} s, and reprokit ended it."
            )
        outcome = "hung" if crashitem in self._hung else "crashed"
        self._add(
            FailedTest(
                crashitem, outcome, note.get("limit_s", self._limit_s), note.get("options", "")
            )
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect a test that failed under torch.compile."""
        options = getattr(report, "reprokit_options", None)
        if report.failed and options is not None:
            self._add(FailedTest(report.nodeid, "failed", self._limit_s, options))

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Capture nothing after Ctrl-C; xdist has an interrupt of its own for ``-x``."""
        self._is_interrupted = excinfo.type is KeyboardInterrupt

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Capture the failures one after the other, when no test runs any more."""
        self._is_over.set()
        tests = list(self._failed.values())
        chosen = [] if self._is_interrupted else tests[: self._max_captures]
        limit = f"--reprokit-max is {self._max_captures}"
        self._why_left_out = "interrupted" if self._is_interrupted else limit
        for number, test in enumerate(chosen):
            self._say(f"reprokit: capturing {number + 1} of {len(chosen)}: {test.nodeid}")
            name = re.sub(r"[^A-Za-z0-9_]+", "-", test.nodeid.rpartition("::")[2])[:40].strip("-")
            folder = self._output / f"{number + 1:03}-{name}"
            try:
                self._captures.append(
                    captured_test.capture_test(self._config, test, folder, self._options)
                )
            except KeyboardInterrupt:
                self._why_left_out = "interrupted"
                break
            except OSError as problem:
                self._captures.append(
                    TestCapture(test.nodeid, test.outcome, f"it was not captured: {problem}")
                )
        self._left_out = [test.nodeid for test in tests[len(self._captures) :]]
        if self._captures:
            with contextlib.suppress(OSError):  # the summary has the same
                captured_test.write_captures(
                    self._output / "captures.json", self._captures, self._left_out
                )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Name each captured test with its verdict and its pack."""
        if not self._captures and not self._left_out:
            return
        terminalreporter.write_sep("=", "reprokit")
        for capture in self._captures:
            terminalreporter.write_line(f"{capture.nodeid} {capture.outcome}")
            terminalreporter.write_line(f"  {capture.sentence}")
            for name in ("pack", "report"):
                if path := getattr(capture, name):
                    terminalreporter.write_line(f"  {name:<7}{path}")
        for nodeid in self._left_out:
            terminalreporter.write_line(f"{nodeid} was not captured: {self._why_left_out}")
        failure = next((c for c in self._captures if c.pack and c.verdict != "ok"), None)
        if failure is not None and "--no-minimize" in self._options:
            terminalreporter.write_line(f"next: reprokit minimize {shlex.quote(failure.pack)}")

    def _add(self, test: FailedTest) -> None:
        self._failed.setdefault(test.nodeid, test)

    def _say(self, text: str) -> None:
        reporter = self._config.pluginmanager.getplugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(text)

    def _note_path(self, report: pytest.TestReport) -> Path:
        node: Any = getattr(report, "node", None)
        return Path(self.folder) / f"{node.gateway.id if node is not None else 'main'}.json"

    def _watch(self) -> None:
        """Kill the worker of each test that runs longer than its limit, with its children."""
        while not self._is_over.wait(LOOK_EVERY_S):
            for path in Path(self.folder).glob("*.json"):
                note = _read_note(path)
                if note and time.monotonic() - note["began_s"] > note["limit_s"]:
                    self._hung[note["nodeid"]] = note
                    with contextlib.suppress(OSError):
                        path.unlink()
                    _kill_tree(note["pid"])

    def _end(self) -> None:
        self._is_over.set()
        shutil.rmtree(self.folder, ignore_errors=True)


def _capture_options(config: pytest.Config) -> list[str]:
    chosen: str | None = config.option.reprokit_options
    text = chosen if chosen is not None else str(config.getini("reprokit_options"))
    try:
        return shlex.split(text)
    except ValueError as problem:
        raise pytest.UsageError(f"--reprokit-options {text!r}: {problem}") from None


def _output_folder(config: pytest.Config) -> Path:
    chosen = config.option.reprokit_output_dir or str(config.getini("reprokit_output_dir"))
    name = chosen or f"reprokit-out/pytest-{time.strftime('%Y%m%d-%H%M%S')}"
    return Path(config.invocation_params.dir) / name


def _read_note(path: Path) -> dict[str, Any] | None:
    """Return the note of a running test; None if no test runs."""
    try:
        note = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return note if isinstance(note, dict) else None


def _kill_tree(pid: int) -> None:
    try:
        worker = psutil.Process(pid)
        # the worker first: a test whose child ends could otherwise pass in its last moment
        processes = [worker, *worker.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
