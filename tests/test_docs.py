"""The documents match the code: commands, options, kinds, phases, exit codes, keys and links."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from reprokit import api as library
from reprokit.cli.main import COMMANDS, cli
from reprokit.core.judge.hangs.hang_causes import EXPLAIN
from reprokit.core.judge.stacks.phases import COMPILE_PHASES
from reprokit.core.records.verdict_kinds import KINDS
from reprokit.core.triage import trend
from reprokit.core.triage.status import STATUSES
from reprokit.host.nightly.ledger import ledger_file
from reprokit.host.nightly.suite import suite_file
from reprokit.host.pack.writer import FILE_DESCRIPTIONS
from tests.support.console_blocks import documents, is_shown_by, mask_line, merge_output
from tests.support.environments import ROOT
from tests.support.reprokit_calls import reprokit

DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
SITE_URL = "https://reprokit.github.io/reprokit/"
REPOSITORY_URL = "https://github.com/reprokit/reprokit/"
RAW_URL = "https://raw.githubusercontent.com/reprokit/reprokit/main/"
MAX_README_LINES = 150


def page(name: str) -> str:
    return (DOCS / name).read_text()


def _load_hook() -> ModuleType:
    file = DOCS / "hooks" / "generated_reference.py"
    spec = importlib.util.spec_from_file_location("generated_reference", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOK = _load_hook()


def commands() -> list[tuple[str, click.Command]]:
    context = click.Context(cli)
    named_commands = [(name, cli.get_command(context, name)) for name in cli.list_commands(context)]  # type: ignore[attr-defined]
    return [(name, command) for name, command in named_commands if command is not None]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize(
    ("name", "command"), commands(), ids=lambda x: x if isinstance(x, str) else ""
)
def test_every_command_and_option_is_documented(name: str, command: click.Command) -> None:
    """The reference has each command with all of its options, each option has a help text, and
    --help has examples.
    """
    assert f"\n## `reprokit {name}`\n\n<!-- command: {name} -->\n" in page("reference/commands.md")
    assert f"reprokit {name}`" in README
    section, common = HOOK.command_reference(name), HOOK.TABLES["common options"]()
    inside = command.commands if isinstance(command, click.Group) else {}
    for word, below in {"": command, **inside}.items():
        assert f"### `reprokit {name} {word}`" in section or not word
        done = reprokit(*f"{name} {word}".split(), "--help")
        assert done.status == 0 and "Example" in done.out
        for parameter in below.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{name} {word} {parameter.name} has no help"
                for spelled in (*parameter.opts, *parameter.secondary_opts):
                    assert f"`{spelled}`" in (common if HOOK.is_common(parameter) else section), (
                        spelled
                    )
    assert "`--json`" in section


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


def test_the_reference_of_an_option_has_its_value_default_and_variable() -> None:
    """A row has everything that --help has, and no text of it is read as Markdown."""
    option = click.Option(
        ["--proofs", "-p"], type=click.IntRange(1, 9), default=3, show_default=True, envvar="A_B"
    )
    option.help = "Runs of <target> with *all* | some --options."
    row = HOOK.option_row(option)
    assert row.startswith("| `--proofs`, `-p` `N` | Runs of \\<target\\> with \\*all\\* \\| some ")
    assert "`--options`." in row and "default: `3`; at least 1 and at most 9" in row
    assert "environment variable `A_B`" in row


def test_every_kind_phase_cause_and_exit_code_is_documented() -> None:
    """The tables of the pages are those of the code."""
    verdicts = page("explanation/verdicts.md")
    for kind in KINDS:
        assert f"| `{kind}` |" in verdicts
    for phase in {*COMPILE_PHASES, "kernel-run", "collective", "eager", "cudagraphs"}:
        assert re.search(rf"^\| .*`{phase}`.* \|", verdicts, re.MULTILINE), phase
    for code in ("0", "1", "2", "3", "130"):
        assert re.search(rf"^\| {code} \|", page("reference/exit-codes.md"), re.MULTILINE)
    causes = HOOK.on_page_markdown(page("explanation/hangs.md"))
    for cause in EXPLAIN:
        assert f"| `{cause}` |" in causes
    files = HOOK.on_page_markdown(page("reference/pack.md"))
    for name, _ in FILE_DESCRIPTIONS:
        assert f"| `{name}` |" in files


def test_every_exit_code_of_a_command_is_documented() -> None:
    """A command whose help names exit codes is in the table of exit codes."""
    text = page("reference/exit-codes.md")
    for name, command in commands():
        if "Exit codes" in (command.epilog or ""):
            assert f"`{name}" in text or f"`reprokit {name}" in text, name


def test_every_environment_variable_is_documented() -> None:
    """The page of the variables has each one that reprokit reads, and those that it sets."""
    text = page("reference/environment.md")
    names: set[str] = set()
    for file in (ROOT / "reprokit").rglob("*.py"):
        source = file.read_text()
        names |= set(re.findall(r'"(REPROKIT_[A-Z_]+[A-Z])"', source))
        names |= set(re.findall(r'envvar="(\w+)"', source))
    assert len(names) > 10
    for name in names:
        assert f"`{name}`" in text, name


def test_every_key_of_a_suite_and_column_of_the_ledger_is_documented() -> None:
    """The page of suites has the keys of a suite, that of nightly runs the statuses, and that of
    the ledger its tables and columns.
    """
    text = page("reference/suite.md")
    keys = {
        *suite_file.MATRIX_KEYS,
        *suite_file.LIMIT_KEYS,
        *("python", "torch", "packages", "index_url", "find_links"),
        *("target", "command", "set", "tags", "expect", "device", "matrix"),
        *("name", "nights", "healthy_nights", "fixed_nights"),
        *("partition", "most_at_once", "parameters"),
    }
    for key in keys:
        assert re.search(rf"^\| .*`{key}`.* \|", text, re.MULTILINE), key
    nightly = page("explanation/nightly.md")
    for kind in trend.KINDS.values():
        assert f"`{kind}`" in nightly
    for status in STATUSES:
        assert f"| {status} |" in nightly
    documented = page("reference/ledger.md")
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


def calls_in_documents() -> Iterator[tuple[Path, str]]:
    """Yield each command line of a console block that calls reprokit."""
    for document in documents():
        for body in re.findall(r"^```console\n(.*?)^```", document.read_text(), re.M | re.S):
            for line in body.splitlines():
                if line.startswith("$ ") and "reprokit " in line:
                    yield document, line[2:]


def test_the_commands_of_the_documents_exist() -> None:
    """Each call of reprokit in a console block names a command and options that exist."""
    calls = list(calls_in_documents())
    assert len(calls) > 30
    for document, line in calls:
        for call in re.split(r"&&|\|\||[;|>]", line):
            words = shlex.split(call)
            if not any(Path(word).name == "reprokit" for word in words):
                continue
            place = next(n for n, word in enumerate(words) if Path(word).name == "reprokit")
            if "-m" in words[:place] or words[max(place - 1, 0)] == "install":
                continue
            rest = words[place + 1 :]
            command: Any = cli
            while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
                found = command.get_command(click.Context(command), rest[0])
                assert found is not None, f"{document}: {line}"
                command, rest = found, rest[1:]
            options = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
            options |= {"--help", "--version", "--help-all"}
            for word in rest[: rest.index("--")] if "--" in rest else rest:
                if word.startswith("-"):
                    assert word.split("=")[0] in options, f"{document}: {line}: {word}"


def test_the_readme_is_short_and_its_links_work_from_the_package_index() -> None:
    """It has at most 150 lines, and each link is absolute and names a file of this repository."""
    assert README.count("\n") <= MAX_README_LINES
    targets = re.findall(r"\]\(([^)]+)\)", README)
    assert len(targets) > 10
    for target in targets:
        address, _, anchor = target.partition("#")
        assert address.startswith("https://"), target
        if address.startswith(SITE_URL):
            name = address.removeprefix(SITE_URL).strip("/") or "index"
            assert (DOCS / f"{name}.md").is_file(), target
            assert not anchor, "the site's own build checks anchors, this test does not"
        elif address.startswith(RAW_URL):
            assert (ROOT / address.removeprefix(RAW_URL)).is_file(), target
        elif address.startswith(REPOSITORY_URL):
            name = address.removeprefix(REPOSITORY_URL).removeprefix("blob/main/")
            assert (ROOT / name).exists(), target


def test_links_name_existing_files() -> None:
    """Relative links in the documents name existing files, and links to the repository and to
    headings of the README too.
    """
    headings = {
        re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-")
        for h in re.findall(r"^#+ (.+)$", README, re.MULTILINE)
    } | {"readme"}
    for document in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text()):
            address, _, anchor = target.partition("#")
            if address.startswith(REPOSITORY_URL) and "/issues" not in address:
                name = re.sub(r"^(blob|tree|edit)/main/?", "", address[len(REPOSITORY_URL) :])
                assert (ROOT / name).exists(), target
            elif address.rstrip("/") == REPOSITORY_URL.rstrip("/") and anchor:
                assert anchor in headings, target
            elif "://" not in target and address:
                assert (document.parent / address).exists(), f"{document}: {target}"


def test_no_page_repeats_a_sentence_of_another() -> None:
    """A sentence or a cell of a table with nine words or more is on one page only."""
    pages: dict[str, set[str]] = {}
    for document in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")):
        text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
        for paragraph in re.split(r"\n\s*\n|\n(?=[-|\d])", text):
            for sentence in re.split(r"(?<=[.:;])\s|\|", " ".join(paragraph.split())):
                if len(sentence.split()) >= 9:
                    pages.setdefault(sentence.strip(), set()).add(str(document.relative_to(ROOT)))
    assert not {sentence: names for sentence, names in pages.items() if len(names) > 1}


def test_the_site_builds_and_has_every_option(site: Path) -> None:
    """The strict build has no warning, and the pages have the generated parts."""
    text = (site / "reference" / "commands" / "index.html").read_text()
    for _, command in commands():
        for below in (
            command,
            *(command.commands.values() if hasattr(command, "commands") else ()),
        ):
            for parameter in below.params:
                for spelled in parameter.opts if isinstance(parameter, click.Option) else ():
                    assert f"<code>{spelled}</code>" in text, (command.name, spelled)
    api = (site / "reference" / "api" / "index.html").read_text()
    for name in library.__all__:
        assert f'id="reprokit.api.{name}"' in api, name
    assert not list(site.rglob("*.py"))


def test_the_site_needs_no_network(site: Path) -> None:
    """No page loads a script, a style, a font or a picture from a different host."""
    for file in site.rglob("*.html"):
        text = file.read_text()
        for tag in re.findall(r"<(?:script|img|iframe)\b[^>]*>|<link\b[^>]*stylesheet[^>]*>", text):
            assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", tag), (file, tag)


def test_a_block_shows_an_output_apart_from_numbers_and_left_out_lines() -> None:
    """Numbers may differ, words may not, and ``...`` stands for any lines."""
    output = "exception: 'buf1'\ncost  8.3 s, 1,653 MB\npack  /home/you/a-80e0acb1f040\n"
    assert is_shown_by(["exception: 'buf1'", "...", "pack  /home/you/a-80e0acb1f040"], output)
    assert is_shown_by(["exception: 'buf1'", "cost  12 s, 7 MB", "..."], output)
    assert not is_shown_by(["exception: 'buf1'", "pack  /home/you/a-80e0acb1f040"], output)
    assert not is_shown_by(["exception: 'buf2'", "..."], output)
    assert mask_line("3 of 3, 0.5 s, buf1, sm_90a  ") == "# of #, # s, buf1, sm_90a"


def test_rewriting_a_block_keeps_what_it_leaves_out() -> None:
    """New lines are shown where the block had no ``...``."""
    old = ["one 1", "...", "four 4"]
    assert merge_output(old, "one 2\ntwo\nthree\nfour 5\n") == ["one 2", "...", "four 5"]
    assert merge_output(["one 1", "two 2"], "one 1\nnew\ntwo 3\n") == ["one 1", "new", "two 3"]
    assert merge_output([], "one\n") == ["one"]


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
        " 'nightly.html.j2', 'suite.toml', 'pages/report.js', 'pages/report.css',"
        " 'pages/base.css', 'pages/nightly.js', 'pages/nightly.css'): assert template_files.read_template(n)\nassert not"
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
