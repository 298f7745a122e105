"""The part of the pytest plugin that is in the process of the tests.

It notes which test runs, so that pytest's main process can end a test that hangs and knows a test
that crashed, and it decides whether a failure happened under ``torch.compile``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import time
import types
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from reprokit.integrations import session_settings

COMPILER_FILE = re.compile(
    r".*/torch/(_dynamo|_inductor|_functorch/_aot_autograd)/.*|.*/torchinductor_[^/]*/.*"
    r"|<eval_with_key>.*"
)
"""Files of the compiler, of code that Inductor wrote, and of graphs."""
COMPILER_MODULES = ("torch._dynamo.", "torch._inductor.")


class RunningTests:
    """Note each test in ``folder`` while it runs, and mark the reports of failures to capture."""

    def __init__(self, config: pytest.Config, folder: str) -> None:
        self._limit_s = session_settings.time_limit_s(config)
        worker_input: dict[str, Any] = getattr(config, "workerinput", {})
        self._path = Path(folder) / f"{worker_input.get('workerid', 'main')}.json"
        self._frames_before = 0
        self._problem = ""
        """What is wrong with the marker of the running test."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note the test before its first fixture, and remove the note after its last."""
        self._frames_before = _compiled_frames()
        mark = _read_marker(item)
        limit_s, self._problem = self._limit_s, ""
        try:
            if mark.get("timeout") is not None:
                limit_s = session_settings.read_duration(str(mark["timeout"]))
        except argparse.ArgumentTypeError as problem:
            self._problem = f"the marker reprokit: timeout: {problem}"
        note = {
            "nodeid": item.nodeid,
            "pid": os.getpid(),
            "began_s": time.monotonic(),
            "limit_s": limit_s,
            "options": mark.get("options") or "",
        }
        # on a different machine, with xdist's --tx ssh=..., the folder does not exist
        with contextlib.suppress(OSError):
            draft = self._path.with_suffix(".draft")
            draft.write_text(json.dumps(note), "utf-8")
            draft.replace(self._path)
        try:
            return (yield)
        finally:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def pytest_runtest_setup(self) -> None:
        """Fail a test whose marker is wrong."""
        if self._problem:
            pytest.fail(self._problem, pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the options of the capture to the report of a failure under torch.compile."""
        report = yield
        if not report.failed or call.excinfo is None:
            return report
        mark = _read_marker(item)
        has_compiled = _compiled_frames() > self._frames_before
        is_wanted = mark or has_compiled or is_from_compiler(call.excinfo.value)
        if is_wanted and mark.get("enabled", True):
            report.reprokit_options = mark.get("options") or ""  # type: ignore[attr-defined]
        return report


class CapturedTests:
    """In a capture, give the exception of a test to ``sys.excepthook``, where the agent reads it.

    pytest catches it, so that it would not be in the journal.
    """

    def __init__(self) -> None:
        self._has_failed = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report the first failure; a later one may be its consequence, such as in a fixture."""
        report = yield
        if report.failed and call.excinfo is not None and not self._has_failed:
            self._has_failed = True
            error = call.excinfo
            sys.excepthook(error.type, error.value, error.tb)
        return report


def _read_marker(item: pytest.Item) -> dict[str, Any]:
    """Return the arguments of the marker ``reprokit``; without the marker, an empty dict."""
    mark = item.get_closest_marker("reprokit")
    if mark is None:
        return {}
    enabled = mark.args[0] if mark.args else True
    return {"enabled": enabled, **mark.kwargs}


def _compiled_frames() -> int:
    """Return how many frames Dynamo has tried to compile in this process; 0 without Dynamo."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters = getattr(utils, "counters", None)
    return int(counters["frames"]["total"]) if counters is not None else 0


def is_from_compiler(error: BaseException) -> bool:
    """Return whether an exception, or one that it was raised from, passed through the compiler."""
    return any(
        type(link).__module__.startswith(COMPILER_MODULES)
        or any(COMPILER_FILE.fullmatch(file) for file in _files(link.__traceback__))
        for link in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _files(trace: types.TracebackType | None) -> Iterator[str]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
