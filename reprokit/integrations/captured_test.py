"""Run one test of a pytest session again, alone, in ``reprokit capture``.

The test gets the options of the session, without those that choose other tests, write a report, or
belong to the session as a whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FLAGS = frozenset(
    "--reprokit --no-reprokit --reprokit-captured -d -f --looponfail --pdb --trace --lf"
    " --last-failed --ff --failed-first --nf --new-first --sw --stepwise --sw-skip --stepwise-skip"
    " --sw-reset --stepwise-reset --cache-clear --self-contained-html --cov-append --cov-branch"
    " --no-cov --no-cov-on-fail --json-report".split()
)
"""Options without a value that the capture leaves out."""
VALUES = frozenset(
    "--reprokit-timeout --reprokit-output-dir --reprokit-options --reprokit-max -n --numprocesses"
    " --maxprocesses --max-worker-restart --dist --tx --px --rsyncdir --rsyncignore --testrunuid"
    " --maxschedchunk --maxfail --last-failed-no-failures --lfnf --pdbcls --junitxml --junit-xml"
    " --junitprefix --junit-prefix --html --css --cov-report --cov-config --cov-fail-under"
    " --cov-context --json-report-file --report-log --alluredir --basetemp --log-file --pastebin"
    " --timeout --timeout-method --timeout_method".split()
)
"""Options with a value that the capture leaves out."""
OPTIONAL_VALUES = frozenset(("--cov", "--debug", "--cache-show"))
_JOINED = re.compile(r"-n(\d+|auto|logical)")
_STARTUP_S = 60.0
"""More seconds than the limit of a test, for the start of pytest and torch under the watchdog."""
STALL_S = 60.0
"""No progress for this long is a stall, unless the limit of the test is lower."""


@dataclass(frozen=True)
class FailedTest:
    """A test that is captured at the end of the session."""

    nodeid: str
    outcome: str
    """``failed``, ``crashed`` or ``hung``."""
    limit_s: float
    """Seconds that the test may run."""
    options: str = ""
    """Options of ``reprokit capture`` from the marker of the test."""


@dataclass(frozen=True)
class TestCapture:
    """The result of a capture of one test."""

    nodeid: str
    outcome: str
    sentence: str
    """The verdict in one line, or why there is none."""
    verdict: str = ""
    """The kind of the verdict; empty if the capture failed."""
    signature: str = ""
    pack: str = ""
    report: str = ""

    __test__ = False  # pytest takes a class with this name for a test


def capture_test(
    config: pytest.Config, test: FailedTest, folder: Path, options: Sequence[str]
) -> TestCapture:
    """Run ``test`` in ``reprokit capture``, which writes to ``folder``, and wait for its end.

    Ctrl-C ends the capture and raises KeyboardInterrupt when its pack is complete.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = capture_command(config, test, folder, options)
    where = config.invocation_params.dir
    log_path = folder / "capture.log"
    with open(log_path, "wb") as log:
        child = subprocess.Popen(
            command,
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"},
        )
        is_interrupted = False
        while True:
            try:
                output, _ = child.communicate()
                break
            except KeyboardInterrupt:  # the child got the signal too, and writes its pack
                is_interrupted = True
    result = _read_result(test, output, child.returncode, log_path)
    if is_interrupted:
        raise KeyboardInterrupt
    return result


def capture_command(
    config: pytest.Config, test: FailedTest, folder: Path, options: Sequence[str]
) -> list[str]:
    """Return the command line of the capture."""
    limits = ["--timeout", f"{test.limit_s + _STARTUP_S:g}"]
    limits += ["--stall", f"{min(test.limit_s, STALL_S):g}"]
    capture = [sys.executable, "-m", "reprokit", "capture", "--json", "--output-dir", str(folder)]
    more = [*options, *shlex.split(test.options)]
    return [*capture, *limits, *more, "--", *pytest_command(config, test.nodeid, folder)]


def pytest_command(config: pytest.Config, nodeid: str, folder: Path) -> list[str]:
    """Return the command line that runs one test with the options of this session."""
    script = Path(sys.argv[0])
    is_script = script.name in ("pytest", "py.test") and script.is_file()
    # a script has a different sys.path[0] than -m
    start = [sys.executable, str(script.resolve())] if is_script else [sys.executable, "-m"]
    ini: list[str] = config.getini("addopts")
    words = [*ini, *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    words += [os.fspath(word) for word in config.invocation_params.args]
    kept = options_of_one_test(words, config.getoption("file_or_dir", None) or [])
    override = ["-o", "addopts=", "-o", "log_file="]
    if config.pluginmanager.hasplugin("cacheprovider"):  # keeps --lf of the next session intact
        override += ["-o", f"cache_dir={folder.resolve() / 'pytest-cache'}"]
    if config.pluginmanager.hasplugin("timeout"):  # it would end a hang before reprokit sees it
        override += ["--timeout", "0"]
    file, colons, rest = nodeid.partition("::")
    place = os.path.relpath(config.rootpath / file, config.invocation_params.dir) + colons + rest
    return [
        *start,
        *([] if is_script else ["pytest"]),
        *kept,
        *override,
        "--reprokit-captured",
        place,
    ]


def options_of_one_test(words: Sequence[str], places: Sequence[str]) -> list[str]:
    """Return the options among ``words`` that a run of a single test needs.

    ``places`` are the files, folders and node ids among them, in their order.
    """
    left, kept = list(words), []
    for place in reversed(places):
        for position in reversed(range(len(left))):
            if left[position] == place:
                del left[position]
                break
    position = 0
    while position < len(left):
        word = left[position]
        position += 1
        name, equals, _ = word.partition("=")
        if name in VALUES:
            position += not equals
        elif name in OPTIONAL_VALUES:
            has_value = position < len(left) and not left[position].startswith("-")
            position += has_value and not equals
        elif name not in FLAGS and not _JOINED.fullmatch(word):
            kept.append(word)
    return kept


def _read_result(test: FailedTest, output: bytes, status: int, log: Path) -> TestCapture:
    document: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        document = json.loads(output)
    verdict = document.get("verdict") or {}
    kind = verdict.get("kind") or ""
    if not kind:
        missing = [row["why"] for row in document.get("missing", ())]
        lines = log.read_text("utf-8", "replace").strip().splitlines()
        why = (missing or lines[-1:] or [f"exit status {status}"])[0]
        return TestCapture(test.nodeid, test.outcome, f"it was not captured: {why}")
    phase = verdict.get("phase")
    sentence = f"{kind}{f' in {phase}' if phase not in (None, 'eager') else ''}: {_reason(verdict)}"
    if kind == "ok":
        sentence = f"ok: it {test.outcome} among the other tests and passes alone"
    return TestCapture(
        test.nodeid,
        test.outcome,
        " ".join(sentence.split()),
        kind,
        (document.get("signature") or {}).get("id") or "",
        document.get("pack") or "",
        document.get("report") or "",
    )


def _reason(verdict: Mapping[str, Any]) -> str:
    """Return why a test fails: the evidence against its own code, if that is responsible."""
    because = " ".join(verdict.get("responsible_because") or ())
    if verdict.get("responsible") != "user" or not because:
        return str(verdict["reason"])
    place = verdict.get("responsible_place") or ""
    return f"{because} Responsible: {place}." if place and place not in because else because


def write_captures(path: Path, captures: Sequence[TestCapture], left_out: Sequence[str]) -> None:
    """Write the results of a session as one complete JSON file."""
    rows = [dataclasses.asdict(capture) for capture in captures]
    document = {"schema": 1, "captures": rows, "left_out": list(left_out)}
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    draft.replace(path)
