"""A test that uses torch, a system program or the network without the marker for it fails."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import requirements, system_packages, warm_processes


def item(path: Path, name: str, *markers: str) -> Any:
    """Return what the checks need of a test item."""
    return SimpleNamespace(
        path=path,
        originalname=name,
        nodeid=f"{path.name}::{name}",
        get_closest_marker=lambda marker: marker if marker in markers else None,
    )


def test_torch_without_the_marker_is_refused_in_children() -> None:
    """An interpreter that a test without the marker starts cannot import torch."""
    done = subprocess.run(
        [sys.executable, "-c", "import torch"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "needs the marker 'real'" in done.stderr


def test_the_server_with_torch_without_the_marker_is_refused(tmp_path: Path) -> None:
    """A test without the marker cannot use a process that has imported torch."""
    with pytest.raises(pytest.fail.Exception, match="needs the marker 'real'"):
        warm_processes.run_torch_program("", cwd=tmp_path)


def test_triton_without_the_marker_is_hidden_in_children() -> None:
    """To an interpreter that a test without the marker starts, Triton is not installed."""
    text = "import importlib.util; print(importlib.util.find_spec('triton')); import triton"
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "None\n" and "ModuleNotFoundError" in done.stderr


@pytest.mark.triton
def test_triton_with_the_marker_is_not_hidden() -> None:
    """A test with the marker has the Triton that is installed."""
    text = "import importlib.util; print(importlib.util.find_spec('triton'))"
    command = [sys.executable, "-c", text]
    assert "ModuleSpec" in subprocess.run(command, capture_output=True, text=True).stdout


def test_torch_without_the_marker_is_refused_in_a_test_module(tmp_path: Path) -> None:
    """An import at the top concerns all tests of the module, an import in a test that test."""
    whole, inside = tmp_path / "test_whole.py", tmp_path / "test_inside.py"
    whole.write_text("import torch.nn\n")
    inside.write_text("def test_a():\n    from torch import nn\ndef test_b():\n    pass\n")
    for test in (item(whole, "test_a"), item(inside, "test_a")):
        with pytest.raises(pytest.UsageError, match="needs the marker 'real'"):
            requirements.check_imports(test)
    for test in (item(whole, "test_a", "real"), item(inside, "test_b")):
        requirements.check_imports(test)


def test_a_system_program_without_the_marker_is_refused(pytestconfig: pytest.Config) -> None:
    """The test fails before it looks for the program or installs it."""
    with pytest.raises(pytest.fail.Exception, match="needs the marker 'slurm'"):
        system_packages.require_programs(pytestconfig, "slurm", ("true",), ("none",))


@pytest.mark.slurm
def test_a_missing_program_skips_with_the_option_that_installs_it(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line names the packages and the option; nothing is installed without it."""
    monkeypatch.setattr(pytestconfig.option, "install_system_deps", False)
    monkeypatch.setattr(system_packages, "_install", lambda packages: pytest.fail("installs"))
    with pytest.raises(pytest.skip.Exception) as skipped:
        system_packages.require_programs(pytestconfig, "slurm", ("no-such-program",), ("a", "b"))
    assert str(skipped.value) == (
        "no-such-program not installed: install a and b, or run pytest as root with"
        " --install-system-deps"
    )


def test_the_network_without_the_marker_is_refused() -> None:
    """HTTP goes to a proxy that does not exist."""
    with pytest.raises(urllib.error.URLError, match="refused"):
        urllib.request.urlopen("http://example.org", timeout=5)
