"""The tier of a test, and the markers of what it needs beyond Python. A test that uses it without
the marker fails.
"""

from __future__ import annotations

import ast
import functools
import os
from pathlib import Path

import pytest

from tests.support.environments import ROOT

QUICK, REAL, LONG = TIERS = ("quick", "real", "long")
"""A test without the marker of a slower tier is quick. Only slower tests may import torch."""
REAL_FOLDERS = ("tests/agent", "tests/gpu")
"""All tests below these folders are real, because what they test imports torch."""
MARKER_OF_FIXTURE = {
    "browser": "browser",
    "slurm": "slurm",
    "cuda_device": "gpu",
    "recorded": "recorded",
}
"""A test that uses the fixture gets the marker."""
CACHE_HOME = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
UNMARKED_ENVIRONMENT = {
    # Most CPU builds of torch run without Triton. Its import is a tenth of a compile's CPU time.
    # What reprokit remembers of such an interpreter is kept apart.
    "triton": {
        "TESTS_HIDE_TRITON": "1",
        "XDG_CACHE_HOME": str(CACHE_HOME / "reprokit-tests"),
        "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(CACHE_HOME / "pip"),
    },
    "network": dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    "gpu": {"CUDA_VISIBLE_DEVICES": ""},
}
"""Variables of a test without the marker. Nothing listens at the port of the proxies."""
REFUSES_TORCH = "TESTS_REFUSE_TORCH"
"""The variable of a quick test, see tests/site/sitecustomize.py."""
_markers_of_running_test: set[str] = set()


def add_markers(item: pytest.Item) -> None:
    """Add the markers that follow from the folder and the fixtures of a test, and that of its
    tier.
    """
    if any(item.path.is_relative_to(ROOT / folder) for folder in REAL_FOLDERS):
        item.add_marker(REAL)
    for name in getattr(item, "fixturenames", ()):
        if name in MARKER_OF_FIXTURE:
            item.add_marker(MARKER_OF_FIXTURE[name])
    if tier_of(item) == QUICK:
        item.add_marker(QUICK)


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test; a long test of a module of real tests is long."""
    return next((tier for tier in (LONG, REAL) if item.get_closest_marker(tier)), QUICK)


def check_imports(item: pytest.Item) -> None:
    """Raise an error if a quick test, or its module, imports torch."""
    function = getattr(item, "originalname", "")
    if {"", function} & _torch_imports(item.path) and tier_of(item) == QUICK:
        raise pytest.UsageError(f"{item.nodeid} imports torch and needs the marker 'real'")


def check_marker(marker: str) -> None:
    """Fail the running test if it does not have the marker."""
    if marker not in _markers_of_running_test:
        pytest.fail(f"a test that uses this needs the marker {marker!r}")


def set_environment(item: pytest.Item) -> None:
    """Set the variables of the missing markers for the test and its children."""
    _markers_of_running_test.clear()
    _markers_of_running_test.update(marker.name for marker in item.iter_markers())
    for marker, variables in UNMARKED_ENVIRONMENT.items():
        for name, value in variables.items():
            _restore(name)
            if item.get_closest_marker(marker) is None:
                os.environ[name] = value
    starts_captures = item.config.getoption("--captures") != "recorded"
    is_recorded = item.get_closest_marker("recorded") is not None
    _restore(REFUSES_TORCH)
    if tier_of(item) == QUICK and not (is_recorded and starts_captures):
        os.environ |= {
            REFUSES_TORCH: "1",
            "XDG_CACHE_HOME": str(CACHE_HOME / "reprokit-quick-tests"),
        }


@functools.cache
def _original(name: str) -> str | None:
    return os.environ.get(name)


def _restore(name: str) -> None:
    if (value := _original(name)) is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


@functools.cache
def _torch_imports(path: Path) -> frozenset[str]:
    """Return the names of the functions of a file that import torch; of the file itself, ""."""
    names = set()
    for statement in ast.parse(path.read_text()).body:
        is_function = isinstance(statement, ast.FunctionDef)
        for node in ast.walk(statement):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module or ""]
            else:
                continue
            if any(module.split(".")[0] == "torch" for module in modules):
                names.add(statement.name if is_function else "")
    return frozenset(names)
