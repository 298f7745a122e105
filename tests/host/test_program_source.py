"""The source of a target is one text, or there is a reason why it is not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from reprokit.core.shared.contract.events import Process
from reprokit.host.minimize.starts import program_source
from reprokit.host.probe import isolated_runs
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_command
from reprokit.host.run.observation_reader import Journals

LATER = 4e9
"""Seconds since the epoch, after any change of a file."""


@pytest.mark.parametrize(
    ("script", "module", "text", "why"),
    [
        ("import net\nnet.make()\n", "def make():\n    pass\n", "def make():\n", ""),
        ("import net\nx = (\n", "", "", "train.py does not parse: "),
        ("import net\n", "x = (\n", "", "train.py does not parse: "),
        (
            "from net import Model\n",
            "def make():\n    pass\n",
            "",
            "train.py and the files that it imports cannot be joined: net has no Model",
        ),
    ],
)
def test_a_script_that_cannot_be_one_text_is_named(
    script: str, module: str, text: str, why: str, tmp_path: Path
) -> None:
    """The reason tells a file that does not parse from files that cannot be joined."""
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "net.py").write_text(module)
    process = Process(argv=["python", "train.py"], cwd=str(tmp_path), t=LATER)
    request = Request(parse_command(("python", "train.py")))
    own = program_source.own_source(request, Journals({1: [process]}, 0, {}))
    found, reason = own.text, own.why_not
    assert found.startswith(text) and bool(found) == bool(text)
    assert reason.startswith(why) and bool(reason) == bool(why)


@pytest.mark.parametrize("is_installed", [True, False])
def test_a_library_on_the_path_is_not_joined(
    is_installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``pip --target`` installs to any folder; a project that is developed there is the user's."""
    site = tmp_path / "site"
    (site / "net").mkdir(parents=True)
    (site / "net" / "__init__.py").write_text("from ._compiled import make\n")
    (site / "net" / "_compiled.py").write_text("def make():\n    pass\n")
    name = "net-1.0.dist-info" if is_installed else "net.egg-info"
    (site / name).mkdir()
    if is_installed:
        (site / name / "RECORD").write_text(f"net/__init__.py,,\n{name}/RECORD,,\n")
    else:
        (site / name / "SOURCES.txt").write_text("net/__init__.py\n")
    (site / name / ("METADATA" if is_installed else "PKG-INFO")).write_text("Name: net\n")
    (tmp_path / "train.py").write_text("import net\nnet.make()\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    words = ("python", "train.py")
    process = Process(argv=list(words), cwd=str(tmp_path), t=LATER)
    own = program_source.own_source(Request(parse_command(words)), Journals({1: [process]}, 0, {}))
    assert own.why_not == "" and ("import net" in own.text) == is_installed


def test_a_package_that_is_run_may_import_from_itself(tmp_path: Path) -> None:
    """The names of ``from . import`` in ``__main__.py`` are those of its package."""
    net = tmp_path / "own" / "net"
    net.mkdir(parents=True)
    (net / "__init__.py").write_text("from .layers import Layer\n")
    (net / "layers.py").write_text("class Layer:\n    pass\n")
    (net / "__main__.py").write_text("from . import Layer, layers\nLayer()\nlayers.Layer()\n")
    words = ("python", "-m", "own.net")
    process = Process(argv=list(words), cwd=str(tmp_path), t=LATER)
    own = program_source.own_source(Request(parse_command(words)), Journals({1: [process]}, 0, {}))
    assert own.why_not == ""
    assert own.text.splitlines()[-3:] == ["pass", "Layer()", "Layer()"]


def test_the_only_rank_of_torchrun_sets_the_variables_of_torchrun(tmp_path: Path) -> None:
    """A copy of the script runs without torchrun, and joins a process group of one rank."""
    (tmp_path / "train.py").write_text("from __future__ import annotations\nimport torch\n")
    request = Request(parse_command(("python", "train.py", "--fast")))
    launcher = Process(argv=["python", "/bin/torchrun", "train.py"], cwd=str(tmp_path), t=LATER)
    rank = dataclasses.replace(
        launcher, argv=["python", "-u", "train.py", "--fast"], rank="0", world_size="1"
    )
    own = program_source.own_source(request, Journals({1: [launcher], 2: [rank]}, 0, {}))
    rows = own.text.splitlines()
    assert rows[:2] == ["from __future__ import annotations", "import os"]
    assert "'WORLD_SIZE': '1'" in rows[2] and rows[3:5] == [
        "import sys",
        "sys.argv = ['repro.py', '--fast']",
    ]


def test_a_script_is_not_run_again_where_it_cannot_be_isolated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason says what the machine lacks."""
    why = "user namespaces: Operation not permitted"
    monkeypatch.setattr(isolated_runs, "why_not_isolated", lambda: why)
    (tmp_path / "train.py").write_text("import torch\n")
    process = Process(argv=["python", "train.py"], cwd=str(tmp_path), t=LATER)
    request = Request(parse_command(("python", "train.py")))
    own = program_source.own_source(request, Journals({1: [process]}, 0, {}))
    assert (own.text, own.isolation) == ("", None)
    assert own.why_not.startswith(f"this machine cannot isolate changed copies of train.py: {why};")
    assert "--without-isolation" in own.why_not
    agreed = dataclasses.replace(request, runs_unisolated=True)
    own = program_source.own_source(agreed, Journals({1: [process]}, 0, {}))
    assert own.text == "import torch\n" and own.isolation is not None and own.isolation.is_open
    monkeypatch.setattr(isolated_runs, "why_not_isolated", lambda: "")
    own = program_source.own_source(agreed, Journals({1: [process]}, 0, {}))
    assert own.isolation is not None and not own.isolation.is_open
