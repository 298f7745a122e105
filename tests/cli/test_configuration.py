"""Options from files and environment variables, and the options that every command has."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.cli.main import cli
from reprokit.cli.shared import config_file, out
from reprokit.cli.shared.command_classes import COMMON_OPTIONS, Command, Option, words_of_options
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.errors import BadInput
from reprokit.host.nightly.suite import suite_file
from reprokit.host.request import durations
from tests.support.environments import ROOT, clean_environ, with_small_torch
from tests.support.reprokit_calls import CallResult, reprokit

PRINTS = (
    "import os, torch; print({k: v for k, v in os.environ.items() if k.startswith('REPROKIT_')})"
)


def all_commands() -> list[tuple[click.Context, Command]]:
    """Return every command that is not a group, with a context that has its place."""
    found, context = [], click.Context(cli, info_name="reprokit", auto_envvar_prefix="REPROKIT")
    left = [(context, cli.get_command(context, name), name) for name in cli.list_commands(context)]
    for parent, command, name in left:
        context = click.Context(command, parent=parent, info_name=name)
        if isinstance(command, click.Group):
            left += [(context, part, word) for word, part in command.commands.items()]
        else:
            assert isinstance(command, Command)
            found.append((context, command))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with options in its pyproject.toml, and a folder in it."""
    place = tmp_path_factory.mktemp("project")
    (place / "pyproject.toml").write_text(
        "[project]\nname = 'x'\n[tool.reprokit]\nstall = '2m'\ngrace = 7\nbudget = 50\n"
        "[tool.reprokit.capture]\ngrace = '1h30m'\nno_trace = true\nlogs = ['+dynamo']\n"
        "[tool.reprokit.nightly]\noutput-dir = 'nights'\n"
    )
    (place / "inside").mkdir()
    return place


@pytest.fixture(scope="module")
def captured(folder: Path) -> tuple[CallResult, dict[str, object]]:
    """A capture of a program that prints its variables, with options from everywhere."""
    variables = {
        "REPROKIT_CAPTURE_TIMEOUT": "10m",
        "TORCH_COMPILE_TIMEOUT": "3",
        "REPROKIT_STALL": "90s",
        "REPROKIT_BUDGET": "40",
        "REPROKIT_CAPTURE_ON_STALL": "report",
    }
    done = reprokit(
        *("capture", "--json", "--budget", "1m", "--output-dir", "out"),
        *("--", sys.executable, "-c", PRINTS),
        cwd=folder / "inside",
        env=clean_environ(PYTHONPATH=with_small_torch(folder), **variables),
    )
    return done, json.loads((done.run_dir / "run.json").read_text())


def test_the_command_line_comes_before_variables_files_and_defaults(
    captured: tuple[CallResult, dict[str, object]],
) -> None:
    """The variable of a command comes before the common one, and the table of a command before the
    top level of the file.
    """
    _, request = captured
    expected = {
        "budget_s": 60.0,  # command line, before a variable and the file
        "deadline_s": 600.0,  # the variable of the command, before the one of torch
        "stall_s": 90.0,  # a common variable, before the file
        "on_stall": "report",
        "grace_s": 5400.0,  # the table of the command, before the top level
        "has_trace": False,
        "logs": ["+dynamo"],
        "line_repeats": 20_000,  # the default
    }
    assert {name: request[name] for name in expected} == expected


def test_the_target_has_the_variables_of_the_user_unchanged(
    captured: tuple[CallResult, dict[str, object]],
) -> None:
    """A program that reads variables of reprokit sees what the user has set, and the variables of
    its run.
    """
    done, _ = captured
    seen = eval((done.run_dir / "logs" / "stdout.txt").read_text())
    ours = {name for name in seen if name.startswith(run_names.OUR_VARIABLES)}
    assert seen["REPROKIT_LOGS"] == "+dynamo" and seen["REPROKIT_RUN_DIR"] == str(done.run_dir)
    assert seen["REPROKIT_STALL"] == "90s" and seen["REPROKIT_BUDGET"] == "40"
    assert {name for name in seen if name.startswith("REPROKIT_CAPTURE")}.isdisjoint(ours)


def test_no_option_has_a_variable_that_a_run_sets() -> None:
    """The variables of reprokit in the target of one capture are not options of another."""
    for context, command in all_commands():
        for option in command.params:
            if isinstance(option, Option):
                for name in option.variables(context):
                    assert not name.startswith(run_names.OUR_VARIABLES), name


def test_every_option_has_a_variable_and_a_key() -> None:
    """Only options that end the command at once have none, and each has a help text."""
    common = set()
    for context, command in all_commands():
        for option in command.params:
            if isinstance(option, click.Option):
                assert isinstance(option, Option), (command.name, option.name)
                words = str(context.command_path).upper().replace(" ", "_").replace("-", "_")
                expected = f"{words}_{option.word.upper().replace('-', '_')}"
                assert expected in option.variables(context) or option.word == "help-all"
                assert option.help
        common |= words_of_options(command).keys()
    assert set(COMMON_OPTIONS) <= common


WRONG = {
    "stal = '5m'": "line 1, stal: there is no such option or command here; did you mean stall?",
    "stall = true": 'line 1, stall: true is not a duration, such as 90, "90s" or "10m"',
    "stall = '5x'": "Invalid value for '--stall' (stall in ",
    "yes = true": "line 1, yes: a file cannot give consent; add --yes to the command",
    "timeout = 3": "line 1, timeout: there is no such option or command here; an option that only",
    "stall = 1\n[": "reprokit.toml is not TOML",
    "[captur]": "line 1, captur: there is no such option or command here; did you mean capture?",
    "capture = 3": "line 1, capture: 3 is not a table; write [capture]",
    "[replay]\ntimes = 'x'": 'line 2, replay.times: "x" is not a whole number',
    "[replay]\ntimes = 0": "Invalid value for '-n' / '--times' (times in ",
    "[replay]\njson = 'yes'": 'line 2, replay.json: "yes" is not true or false',
    "[replay]\npython = 3": "line 2, replay.python: 3 is not a string",
    "[replay]\non-stall = 3": "line 2, replay.on-stall: there is no such option",
    "color = 'blue'": "Invalid value for '--color' (color in ",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_one_line(text: str, tmp_path: Path) -> None:
    """The line names the file, the line and the key, and what is possible there."""
    (tmp_path / "reprokit.toml").write_text(text)
    done = reprokit("replay", "none.tar.gz", cwd=tmp_path)
    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1 and WRONG[text] in done.err, done.err


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    """The line names the variable, because the user does not see it on the command line."""
    environ = clean_environ(REPROKIT_STALL="never")
    done = reprokit("replay", "none.tar.gz", cwd=tmp_path, env=environ)
    assert done.status == 2
    assert "Invalid value for '--stall' (variable REPROKIT_STALL): 'never' is not" in done.err


def ledger_of(*words: str, cwd: Path, **variables: str) -> str:
    """Return the path of the ledger that a command would use."""
    done = reprokit(*words, "nightly", "export", cwd=cwd, env=clean_environ(**variables))
    assert done.status == 2 and "/ledger.sqlite" in done.err, done.err
    return done.err.partition("/ledger.sqlite")[0].partition("there is no ledger ")[2]


def test_the_log_names_the_file(folder: Path) -> None:
    """A user can find out where an option is from."""
    done = reprokit("models", "-v", cwd=folder / "inside")
    assert f"options are read from {folder}/pyproject.toml" in done.err


def test_the_options_of_scale_are_not_those_of_a_capture_in_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``scale`` reads the defaults of ``capture``, which must not reset --json and --quiet."""
    monkeypatch.setattr(out, "SETTINGS", out.OutputSettings())
    with pytest.raises(BadInput):
        cli.main(["scale", "no-model", "--set", "x=1,2,4", "--json", "-q"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["error"]
    assert out.SETTINGS.is_json and out.SETTINGS.is_quiet


def test_the_nearest_file_counts_and_its_paths_are_beside_it(folder: Path, tmp_path: Path) -> None:
    """A pyproject.toml without [tool.reprokit] does not count, --config names another file, and
    --isolated uses none and no variables.
    """
    inside = folder / "inside"
    assert ledger_of(cwd=inside) == str(folder / "nights")
    named = tmp_path / "other.toml"
    named.write_text("[nightly.export]\noutput_dir = '../else'\n")
    assert ledger_of("--config", str(named), cwd=inside) == str(tmp_path / "../else")
    assert ledger_of(cwd=inside, REPROKIT_CONFIG=str(named)) == str(tmp_path / "../else")
    variables = {"REPROKIT_NIGHTLY_EXPORT_OUTPUT_DIR": "a", "REPROKIT_NIGHTLY_OUTPUT_DIR": "b"}
    assert ledger_of(cwd=inside, **variables) == "a"
    assert ledger_of(cwd=inside, REPROKIT_NIGHTLY_OUTPUT_DIR="b") == "b"
    assert ledger_of("--isolated", cwd=inside, **variables) == "reprokit-nightly"
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "reprokit.toml").write_text("[nightly]\noutput-dir = 'far'\n")
    (tmp_path / "x" / "pyproject.toml").write_text("[tool.ruff]\nname = 'reprokit'\n")
    assert ledger_of(cwd=tmp_path / "x" / "y") == str(tmp_path / "far")
    (tmp_path / "x" / "reprokit.toml").write_text("")
    assert ledger_of(cwd=tmp_path / "x" / "y") == "reprokit-nightly"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_in_an_open_folder_is_not_read(tmp_path: Path) -> None:
    """Another user who writes to a folder such as /tmp cannot choose the interpreter of others."""
    (tmp_path / "inside").mkdir()
    tmp_path.chmod(0o1777)
    file = tmp_path / "reprokit.toml"
    file.write_text("[nightly]\noutput-dir = 'mine'\n")
    assert ledger_of(cwd=tmp_path / "inside") == str(tmp_path / "mine")
    os.chown(file, 12345, 12345)
    assert ledger_of(cwd=tmp_path / "inside") == "reprokit-nightly"


def test_options_of_a_file_are_not_refused_as_words_of_the_user_would_be(tmp_path: Path) -> None:
    """The zoo does not depend on the interpreter, so --python is refused; a default for all
    commands is not.
    """
    (tmp_path / "reprokit.toml").write_text("python = 'nowhere/python'\n")
    assert reprokit("models", cwd=tmp_path).status == 0
    assert reprokit("models", "--python", "python3", cwd=tmp_path).status == 2
    done = reprokit("models", "hf:", cwd=tmp_path)
    assert f"--python {tmp_path}/nowhere/python: there is no such program" in done.err


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1h 30m", 5400), ("1.5h", 5400)],
)
def test_a_duration_is_a_number_with_units_or_seconds(text: str, seconds: float) -> None:
    """Units are used at most once, the largest first."""
    assert durations.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5x", "10 minutes", "30m1h", "1m1m", "1h-5m", "1:30"])
def test_other_texts_are_not_durations(text: str) -> None:
    """They are refused, and not read in part."""
    with pytest.raises(ValueError):
        durations.parse_duration(text)


@given(st.integers(0, 10**7).filter(bool))
def test_a_described_duration_is_read_back(seconds: int) -> None:
    """What reprokit prints is what it reads."""
    assert durations.parse_duration(durations.describe_duration(seconds)) == seconds


def test_the_seconds_of_a_suite_may_be_durations(tmp_path: Path) -> None:
    """Numbers are seconds, as before."""
    suite = tmp_path / "suite.toml"
    suite.write_text(
        "[suite]\ntimeout_s = '1h30m'\nstall_s = 20\n"
        "[[targets]]\ntarget = 'llama-tiny'\nbudget_s = '2m'\n"
    )
    (cell,) = suite_file.read_suite(suite).cells
    limits = cell.limits
    assert (limits.timeout_s, limits.stall_s, limits.budget_s) == (5400, 20, 120)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("captrue",), "No such command 'captrue'. Did you mean 'capture'?"),
        (("nightly", "rnu"), "No such command 'rnu'. Did you mean 'run'?"),
        (("capture", "--no-minimise"), "Did you mean"),
    ],
)
def test_a_typing_mistake_gets_a_suggestion(words: tuple[str, ...], says: str) -> None:
    """Commands, commands of a group, and options."""
    done = reprokit(*words)
    assert done.status == 2 and says in done.err and done.err.count("\n") == 1, done.err


def test_the_help_has_groups_and_the_whole_help_has_rare_options_and_variables() -> None:
    """--help says how many options it leaves out; --help-all shows them."""
    usual, whole = reprokit("capture", "--help").out, reprokit("capture", "--help-all").out
    for text in (usual, whole):
        for section in ("Model:", "Compile:", "End of a run:", "Findings:", "Repro:", "Output:"):
            assert f"\n{section}\n" in text
    command = next(command for _, command in all_commands() if command.name == "capture")
    rare = {option.opts[0] for option in command.params if getattr(option, "is_rare", False)}
    assert "\nEvidence:\n" in whole and "\nEvidence:\n" not in usual
    assert f"{len(rare)} rare options" in usual
    assert all(f"\n  {word} " in whole and f"\n  {word} " not in usual for word in rare)
    assert "REPROKIT_CAPTURE_STALL" in whole and "REPROKIT_CAPTURE_STALL" not in usual
    assert "\nOptions:\n" in reprokit("known", "--help").out  # few options need no groups


def test_every_command_has_the_common_options() -> None:
    """Quiet, verbose, color and the whole help."""
    for _, command in all_commands():
        words = {word for option in command.params for word in option.opts}
        assert words >= {"-q", "--quiet", "-v", "--verbose", "--color", "--help-all", "--json"}


def test_quiet_hides_progress_but_not_results_and_errors(tmp_path: Path) -> None:
    """The progress on stderr is gone, and the error is not."""
    words = ("--output-dir", "out", "--no-minimize", "--", sys.executable, "-c", "print(5)")
    loud = reprokit("capture", *words, cwd=tmp_path)
    quiet = reprokit("capture", "-q", *words, cwd=tmp_path)
    assert "reprokit: " in loud.err and "reprokit: " not in quiet.err, quiet.err
    assert quiet.out.startswith("5\nok: The target finished")
    wrong = reprokit("capture", "-q", "no_such.py:make", cwd=tmp_path)
    assert wrong.status == 2 and "there is no file no_such.py" in wrong.err


@pytest.fixture(scope="module")
def issue(captured: tuple[CallResult, dict[str, object]]) -> list[str]:
    """A command that prints a style."""
    return ["show", captured[0].json["pack"]]


@pytest.mark.parametrize(
    ("words", "variables", "is_coloured"),
    [
        ((), {}, False),
        (("--color", "always"), {"NO_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1"}, True),
        ((), {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ((), {"REPROKIT_COLOR": "always", "NO_COLOR": "1"}, True),
        (("--color", "never"), {"FORCE_COLOR": "1", "REPROKIT_COLOR": "always"}, False),
        (("--color", "always"), {"TERM": "dumb"}, True),
    ],
)
def test_colour(
    words: tuple[str, ...], variables: dict[str, str], is_coloured: bool, issue: list[str]
) -> None:
    """--color comes before its variable, and that before NO_COLOR and FORCE_COLOR."""
    environ = {k: v for k, v in clean_environ().items() if not k.endswith("_COLOR")}
    done = reprokit(*issue, *words, env={**environ, **variables})
    assert done.status == 0 and ("\x1b[" in done.out) is is_coloured


@pytest.mark.parametrize("columns", ["20", "80", ""])
def test_a_table_in_a_pipe_has_one_whole_line_for_each_row(columns: str) -> None:
    """Whatever COLUMNS is, no cell is cut or wrapped, and no line ends with spaces."""
    environ = clean_environ(**({"COLUMNS": columns} if columns else {}))
    rows = {row["name"]: row for row in reprokit("models", "--json").json["models"]}
    lines = reprokit("models", env=environ).out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*rows]
    for line in lines[1:]:
        assert line.endswith(rows[line.split()[0]]["about"])
    assert [line for line in lines if line != line.rstrip()] == []


def test_the_file_is_not_read_for_help(tmp_path: Path) -> None:
    """A user with a wrong file can ask for help."""
    (tmp_path / config_file.OWN_FILE).write_text("nonsense")
    assert reprokit("--help", cwd=tmp_path).status == 0


def test_the_file_in_the_documentation_can_be_used(tmp_path: Path) -> None:
    """docs/reference/configuration.md names the options of the top level, and its example has no
    wrong key.
    """
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    for word in COMMON_OPTIONS:
        assert f"`{word}`" in text or word == "yes", word
    (tmp_path / "reprokit.toml").write_text(text.split("```toml\n")[1].split("```")[0])
    for words in (("capture", "no-model"), ("nightly", "run", "none.toml")):
        done = reprokit(*words, "--json", cwd=tmp_path)
        assert done.json["error"]["code"] == "bad-input", done.err
