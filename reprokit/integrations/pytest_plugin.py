"""The pytest plugin: a test that fails, hangs or crashes under ``torch.compile`` leaves a pack.

pytest imports this module at each start, so it imports only pytest. Everything else is imported
when ``--reprokit`` is on. ``docs/decisions/0015-pytest-plugin.md`` has the reasons for the design.
"""

from __future__ import annotations

import argparse

import pytest

from reprokit.integrations import session_settings

MARKER = (
    "reprokit(enabled=True, timeout=None, options=None): with --reprokit, capture this test if it"
    " fails, whatever the reason; enabled=False: never capture it; timeout: its time limit, such"
    " as '2m'; options: more options of reprokit capture"
)
IN_PROCESS = 0
"""The value of ``-n`` that runs the tests in pytest's own process."""
WORKER_RESTARTS = "10000"
"""The limit for workers that crash in a test; xdist's own is four for each worker."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; each has a default in the ini file."""
    group = parser.getgroup("reprokit", "packs of failures under torch.compile")
    group.addoption(
        "--reprokit",
        action="store_true",
        default=None,
        help=(
            "Capture each test that fails, hangs or crashes under torch.compile, and name its pack"
            " in the summary. The tests run in a worker process of pytest-xdist."
        ),
    )
    group.addoption(
        "--no-reprokit",
        dest="reprokit",
        action="store_false",
        help="Capture nothing, although the ini file says reprokit = true.",
    )
    group.addoption(
        "--reprokit-timeout",
        type=session_settings.read_duration,
        metavar="DURATION",
        help="End a test that runs longer, and capture it as a hang; ini reprokit_timeout (10m).",
    )
    group.addoption(
        "--reprokit-output-dir",
        metavar="DIR",
        help="The folder of the packs; ini reprokit_output_dir (reprokit-out/pytest-TIME).",
    )
    group.addoption(
        "--reprokit-options",
        metavar="WORDS",
        help=(
            "Options of reprokit capture; ini reprokit_options (--no-minimize --no-ablate). An"
            " empty text gives the full capture, which takes minutes for each test."
        ),
    )
    group.addoption(
        "--reprokit-max",
        type=session_settings.read_count,
        metavar="N",
        help="Capture at most N tests; ini reprokit_max (10).",
    )
    group.addoption("--reprokit-captured", action="store_true", help=argparse.SUPPRESS)
    parser.addini("reprokit", "Capture failures under torch.compile.", type="bool", default=False)
    parser.addini("reprokit_timeout", "The longest time of a test.", default="10m")
    parser.addini("reprokit_output_dir", "The folder of the packs.", default="")
    parser.addini(
        "reprokit_options", "Options of reprokit capture.", default="--no-minimize --no-ablate"
    )
    parser.addini("reprokit_max", "The largest number of captures.", default="10")


def is_enabled(config: pytest.Config) -> bool:
    """Return whether failures of this session are captured."""
    if config.option.reprokit_captured or config.getoption("collectonly"):
        return False
    chosen: bool | None = config.option.reprokit
    return bool(config.getini("reprokit")) if chosen is None else chosen


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let xdist run the tests in a worker process, unless ``-n`` or ``--pdb`` says otherwise."""
    if not is_enabled(config) or hasattr(config, "workerinput"):
        return
    option = config.option
    if not hasattr(option, "numprocesses"):
        raise pytest.UsageError(
            "--reprokit needs pytest-xdist, so that the tests go on after a crash or a hang:"
            " pip install 'reprokit[pytest]'"
        )
    if option.maxworkerrestart is None:
        option.maxworkerrestart = WORKER_RESTARTS
    if option.numprocesses is None and not option.tx and not config.getoption("usepdb", False):
        option.numprocesses, option.tx = 1, ["popen"]
        if option.dist == "no":
            option.dist = "load"


def pytest_configure(config: pytest.Config) -> None:
    """Register the part of the plugin that this process needs: none without ``--reprokit``."""
    config.addinivalue_line("markers", MARKER)
    if config.option.reprokit_captured:
        from reprokit.integrations import running_test

        config.pluginmanager.register(running_test.CapturedTests(), "reprokit-captured")
    if not is_enabled(config):
        return
    worker_input = getattr(config, "workerinput", None)
    if worker_input is None:
        from reprokit.integrations import watched_session

        session = watched_session.WatchedSession(config)
        config.pluginmanager.register(session, "reprokit-session")
        folder = session.folder if session.is_in_process else None
    else:
        folder = worker_input.get("reprokit_folder")
    if folder is not None:
        from reprokit.integrations import running_test

        config.pluginmanager.register(running_test.RunningTests(config, folder), "reprokit-tests")
