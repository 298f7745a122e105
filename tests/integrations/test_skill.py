"""SKILL.md: what it tells a program or a coding agent is true."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import click
import yaml

from reprokit.cli.main import cli
from reprokit.core.judge.responsible.parties import PARTIES
from reprokit.core.records.verdict_kinds import KINDS
from tests.support.environments import ROOT

TEXT = (ROOT / "SKILL.md").read_text()


def test_the_front_matter_is_that_of_a_skill() -> None:
    """It has a name of lower-case letters and a description that says when to use it."""
    _, front, _ = TEXT.split("---\n", 2)
    matter = yaml.safe_load(front)
    assert set(matter) == {"name", "description"} and matter["name"] == "reprokit"
    assert "Use it when" in matter["description"] and len(matter["description"]) <= 1024


def test_each_command_exists_with_its_options() -> None:
    """The commands and options that the text names are those of the command line."""
    context = click.Context(cli)
    for words in re.findall(r"`(?:python -m )?reprokit ([^`]+)`", TEXT):
        name, *rest = shlex.split(words)
        if name == "COMMAND":
            continue
        command = cli.get_command(context, name)
        assert command is not None, name
        options = {word for p in command.params for word in (*p.opts, *p.secondary_opts)}
        ours = rest[: rest.index("--")] if "--" in rest else rest
        for word in ours:
            assert not word.startswith("-") or word in options, f"{name} {word}"


def test_each_kind_and_party_exists() -> None:
    """The values of the answer are those that the code has."""
    row = next(line for line in TEXT.splitlines() if line.startswith("| `verdict.kind`"))
    assert set(re.findall(r"`([a-z-]+)`", row.split("|")[2])) <= set(KINDS)
    row = next(line for line in TEXT.splitlines() if line.startswith("| `verdict.responsible`"))
    assert set(re.findall(r"`([a-z-]+)`", row.split("|")[2])) == set(PARTIES)


def test_the_tutorials_say_where_the_skill_is() -> None:
    """An installed wheel has it beside the modules, and the tutorial has the command."""
    tutorial = (ROOT / "docs" / "tutorials" / "agents.md").read_text()
    assert "reprokit.__file__" in tutorial
    assert '"SKILL.md" = "reprokit/SKILL.md"' in (ROOT / "pyproject.toml").read_text()


def test_the_plugin_is_in_the_help_of_pytest() -> None:
    """An agent finds the options in pytest's own help."""
    command = [sys.executable, "-m", "pytest", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert "--reprokit-timeout=DURATION" in done.stdout and "--reprokit-captured" not in done.stdout
