"""The documents match the code: the README has every command, option, kind and exit code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from reprokit.cli.main import COMMANDS, cli
from reprokit.core.judge.stacks.phases import COMPILE_PHASES
from reprokit.core.records.verdict_kinds import KINDS
from reprokit.core.triage import trend
from reprokit.core.triage.status import STATUSES
from reprokit.host.nightly.ledger import ledger_file
from reprokit.host.nightly.suite import suite_file
from tests.support.environments import ROOT
from tests.support.reprokit_calls import reprokit

README = (ROOT / "README.md").read_text()


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(cli)
    named_commands = [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]  # type: ignore[attr-defined]
    return [(name, command) for name, command in named_commands if command is not None]


@pytest.mark.parametrize(
    ("name", "command"), commands(), ids=lambda x: x if isinstance(x, str) else ""
)
def test_every_command_and_option_is_documented(name: str, command: click.Command) -> None:
    """The README has a section for each command with all of its options, and --help has
    examples.
    """
    common, _, rest = README.split("\n## Commands\n")[1].partition("\n### ")
    section = common + f"### {rest}".split(f"### `reprokit {name}`")[1].split("\n### ")[0]
    inside = command.commands.items() if isinstance(command, click.Group) else []
    for word in dict(inside):
        assert f"`{word}" in section or f", `{word}" in section, (
            f"{name} {word} is not in the README"
        )
        assert "Example" in reprokit(name, word, "--help").out
    for parameter in [
        *command.params,
        *(p for below in dict(inside).values() for p in below.params),
    ]:
        if isinstance(parameter, click.Option):
            for word in (*parameter.opts, *parameter.secondary_opts):
                assert word in section, f"{name} {word} is not in the README"
            assert parameter.help, f"{name} {parameter.name} has no help"
    done = reprokit(name, "--help")
    assert done.status == 0
    assert "Example" in done.out and "--json" in done.out


def test_help_lists_every_command() -> None:
    """The lazy group has a one-line text for every command, and the help of the group shows
    them.
    """
    done = reprokit("--help")
    for name, about in COMMANDS.items():
        assert name in done.out and about.split(".")[0].split()[0] in done.out
    modules = (ROOT / "reprokit" / "cli" / "commands").glob("*.py")
    assert set(COMMANDS) == {p.stem for p in modules} - {"__init__"}
    assert reprokit("--version").out.startswith("reprokit, version ")


def test_every_kind_phase_and_exit_code_is_documented() -> None:
    """The tables of the README are those of the code."""
    for kind in KINDS:
        assert f"| `{kind}` |" in README
    for phase in COMPILE_PHASES:
        assert phase in README
    for code in ("0", "1", "2", "3", "130"):
        assert re.search(rf"^\| {code} \|", README, re.MULTILINE)


def test_every_key_of_a_suite_and_column_of_the_ledger_is_documented() -> None:
    """docs/nightly.md has the keys of a suite, and docs/ledger.md has the tables and columns of a
    ledger.
    """
    text = (ROOT / "docs" / "nightly.md").read_text()
    keys = {
        *suite_file.MATRIX_KEYS,
        *suite_file.LIMIT_KEYS,
        "python",
        "torch",
        "packages",
        "index_url",
        "find_links",
        "target",
        "command",
    }
    for key in {
        *keys,
        "set",
        "tags",
        "expect",
        "device",
        "nights",
        "partition",
        "most_at_once",
        "parameters",
    }:
        assert f"`{key}`" in text, key
    for kind in trend.KINDS.values():
        assert f"`{kind}`" in text
    for status in STATUSES:
        assert f"| {status} |" in text
    documented = (ROOT / "docs" / "ledger.md").read_text()
    with ledger_file.open_ledger(Path(":memory:"), is_new_ok=True) as store:
        for table in store.fetch_all("SELECT name FROM sqlite_master WHERE type = 'table'"):
            (row,) = [
                line
                for line in documented.splitlines()
                if line.startswith(f"| `{table['name']}` |")
            ]
            for column in store.fetch_all(f"PRAGMA table_info({table['name']})"):
                assert f"`{column['name']}`" in row, (table["name"], column["name"])


def test_the_two_commands_of_the_readme_are_those_of_ci() -> None:
    """The install and test commands are the same as in .ci/run."""
    script = (ROOT / ".ci" / "run").read_text()
    for words in (
        "python3 -m venv .venv",
        "-c constraints.txt -e '.[dev]'",
        ".venv/bin/nox -s",
    ):
        assert words in README and words in script
    assert ".venv/bin/nox -s lint types tests" in script and ".venv/bin/nox -s tests" in README


def test_links_name_existing_files() -> None:
    """Relative links in the documents name existing files."""
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), target


@pytest.mark.network
def test_templates_are_inside_a_built_wheel(tmp_path: Path) -> None:
    """A wheel is built and installed in a different folder, and an issue is rendered from it
    without the source tree.
    """
    built = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path / "dist", ROOT],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    site = tmp_path / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", site, wheel],
        check=True,
    )
    code = (
        "import reprokit, pathlib, sys; from reprokit.host.report import template_files; from"
        " reprokit.host.run import launch\nassert"
        f" pathlib.Path(reprokit.__file__).is_relative_to({str(site)!r}), reprokit.__file__\nfor n"
        " in ('issue/describe.md.j2', 'issue/issue.md.j2', 'pack_readme.md.j2', 'digest.md.j2',"
        " 'nightly.html.j2', 'suite.toml'): assert template_files.read_template(n)\nassert not"
        f" (pathlib.Path({str(site)!r}).parent / 'templates').exists()\nassert"
        f" (pathlib.Path({str(site)!r}) / 'reprokit' / 'py.typed').is_file()\nwith"
        " launch.copied_agent(None, frozenset(launch.PARTS)) as f: assert (f / '_reprokit' / 'agent' / 'simulate' /"
        " 'guard.cpp').is_file() and (f / 'sitecustomize.py').is_file()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(site), "PATH": "/usr/bin:/bin"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
