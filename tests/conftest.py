"""Hooks and fixtures of all tests."""

from __future__ import annotations

import compileall
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support import environments, requirements  # noqa: E402
from tests.support.browser import Browser, find_browser  # noqa: E402
from tests.support.reprokit_calls import CallResult, reprokit, shared_call  # noqa: E402

pytest_plugins = [
    "tests.support.cpu_times",
    "tests.support.gpu_results",
    "tests.support.recordings",
    "tests.support.system_packages",
]

environments.add_site_to_path()
FOLDER_OF_FOLDERS = "reprokit's täst folder"
"""The temporary folders of all tests are in it, because users have such folders."""


@pytest.hookimpl(tryfirst=True)  # before the first temporary folder
def pytest_configure(config: pytest.Config) -> None:
    """Name the temporary folders. A recording is made in a plain one, so that any name can replace
    its name. Let Hypothesis choose the same examples in each run, and others in the long one.
    """
    is_long = config.getoption("--captures") == "fresh"
    hypothesis.settings.register_profile("reprokit", deadline=None, derandomize=not is_long)
    hypothesis.settings.load_profile("reprokit")
    if config.getoption("--captures") != "record":
        folder = Path(tempfile.gettempdir()) / FOLDER_OF_FOLDERS
        folder.mkdir(exist_ok=True)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)


if "PYTEST_XDIST_WORKER" not in os.environ and sys.dont_write_bytecode:
    # Without this, each of some thousand processes would compile all modules again.
    compileall.compile_dir(environments.ROOT / "reprokit", quiet=1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import the modules of real tests, which import torch, where only quick ones run."""
    is_real = any(collection_path == environments.ROOT / f for f in requirements.REAL_FOLDERS)
    return True if is_real and config.option.markexpr == requirements.QUICK else None


@pytest.hookimpl(tryfirst=True)  # before -m selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add and check markers. Put the tests with torch first in the share of each worker, so that
    the tests that idle workers take over at the end are quick.
    """
    for item in items:
        requirements.add_markers(item)
        requirements.check_imports(item)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if requirements.tier_of(item) != requirements.QUICK]
    quick = [item for item in items if requirements.tier_of(item) == requirements.QUICK]
    shares = ((rows, number) for number in range(workers) for rows in (slow, quick))
    items[:] = [
        row
        for rows, n in shares
        for row in rows[len(rows) * n // workers : len(rows) * (n + 1) // workers]
    ]


@pytest.hookimpl(tryfirst=True)  # before the fixtures of the test
def pytest_runtest_setup(item: pytest.Item) -> None:
    requirements.set_environment(item)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Return a function that writes a Python file into the test's folder and returns its path."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write_file


@pytest.fixture
def browser(pytestconfig: pytest.Config) -> Browser:
    """A headless Chromium; skips the test if there is none."""
    return find_browser(pytestconfig)


@pytest.fixture(scope="session")
def wrong_result(tmp_path_factory: pytest.TempPathFactory) -> CallResult:
    """A capture of the sample with a wrong result, compared, ablated and minimized. All workers
    share it.
    """
    sample = environments.ROOT / "samples" / "wrong_result.py"

    def capture(folder: Path) -> CallResult:
        steps = {"REPROKIT_COMPARE": "1", "REPROKIT_MINIMIZE": "1", "REPROKIT_ABLATE": "1"}
        words = ("--budget", "100", "--output-dir", folder / "out")
        environ = environments.clean_environ(**steps)
        return reprokit("capture", "--json", f"{sample}:make", *words, env=environ)

    return shared_call(tmp_path_factory, "wrong", capture)
