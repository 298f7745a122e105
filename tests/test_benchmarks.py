"""``python -m benchmarks``: its list, its measurements in a small form, its tables and its errors."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import markdown_tables, measurement, results
from benchmarks.__main__ import main
from benchmarks.cases import (
    first_answer_cases,
    minimization_cases,
    redaction_cases,
    server_cases,
    sighting_cases,
    silent_cases,
)
from benchmarks.harness import in_turns, run_child, with_json_option
from benchmarks.measurements.hangs.server_faults import Told, has_words, verdict_of
from benchmarks.measurements.models.simulated_gpus import growth_exponents
from benchmarks.measurements.nightly.collect_sightings import (
    factory_target,
    run_key,
    settings_of,
    without_paths,
)
from benchmarks.measurements.nightly.grouping import SIGHTINGS
from benchmarks.measurements.repros.first_answer import facts_of, place_of_line
from benchmarks.measurements.repros.redacted_repros import Failure, last_failure
from benchmarks.minimize_runs import count_lines, count_operators
from benchmarks.printed_runs import joined, run_printed
from tests.support import warm_processes
from tests.support.environments import ROOT
from tests.support.processes import survivors_after_wait
from tests.support.reprokit_calls import CALL_TIMEOUT_S

NAMES = sorted(measurement.measurement_modules())
DOCUMENT = "".join(page.read_text() for page in markdown_tables.DOCUMENTS)
CHEAP = {
    "cluster_schedule": (("--nodes", "10", "--runs", "200"), 2),
    "grouping": ((), 7),
    "harmless_lines": ((), 7),
    "ledger_size": (("--sizes", "100"), 1),
    "startup": (("--rounds", "1"), 4),
    "watching": (("--rounds", "1", "--model", "convnet"), 1),
}
"""Options of measurements that take seconds, and the rows that they give."""


def benchmarks(*words: object) -> subprocess.CompletedProcess[str]:
    """Run ``python -m benchmarks WORDS``."""
    row = [*map(str, words)]
    return warm_processes.run_command_line(row, ROOT, os.environ, CALL_TIMEOUT_S, "benchmarks")


def test_the_list_has_each_measurement_with_its_first_docstring_line() -> None:
    """The list does not import the measurements, and each line of it is complete."""
    command = [sys.executable, "-m", "benchmarks"]  # as a user does
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (done.returncode, sorted(rows)) == (0, NAMES)
    for name, about in rows.items():
        assert about.endswith("."), (name, about)
    assert benchmarks("list").stdout == done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_a_measurement_has_the_common_shape(name: str) -> None:
    """Its docstring says how it is called, and its help and the document name the command."""
    loaded, docstring = measurement.load_measurement(name)
    command = f"python -m benchmarks run {name}"
    assert command in docstring and f"`{command}" in DOCUMENT
    assert len({column.key for column in loaded.columns}) == len(loaded.columns) > 1
    parser = measurement.OneLineParser()
    loaded.add_options(parser)
    parser.parse_args([])
    for action in parser._actions:
        assert action.help or action.option_strings == ["--types"], (name, action.option_strings)
        if action.option_strings and action.option_strings[0] != "-h":
            assert action.option_strings[0] in docstring, (name, action.option_strings)


def test_names_of_modules_are_unique() -> None:
    """A measurement in one package does not hide one of the same name in a different package."""
    folder = ROOT / "benchmarks" / "measurements"
    assert len([p for p in folder.rglob("*.py") if p.name != "__init__.py"]) == len(NAMES)
    assert max(p.read_text().count("\n") for p in (ROOT / "benchmarks").rglob("*.py")) <= 400


def test_the_tables_of_the_document_are_current() -> None:
    """Each table is made from its result, and each result has a table."""
    done = benchmarks("tables", "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_result_of_a_measurement_names_its_command() -> None:
    """Each recorded result is of a measurement that exists, or of a command of reprokit."""
    for name, path in results.recorded_results().items():
        result = results.read_result(path)
        program = f"python -m benchmarks run {result.measurement}" if result.measurement else ""
        if result.measurement == "gpu":  # the checks of tests/gpu
            program = markdown_tables.GPU_COMMAND
        assert result.command.startswith(program or "reprokit "), name
        assert result.measurement in (None, "gpu", *NAMES)
        keys = {column.key for column in result.columns} | {"steps"}
        assert (
            result.is_complete and result.rows and all(set(row) <= keys for row in result.rows)
        ), name


def test_a_changed_table_is_found_and_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--check`` names a table that differs, a table without a result, and a result without a
    table; ``tables`` repairs the first.
    """
    document, folder = tmp_path / "page.md", tmp_path / "results"
    columns = (results.Column("name", "name"), results.Column("cost", "cost", 1))
    rows: list[results.Row] = [{"name": "a | b", "cost": 2.0}, {"name": "c", "cost": None}]
    result = results.Result("startup", "x", columns, rows, {"cpu_count": 2}, None, ("A note.",))
    results.write_result(result, folder / "good.json")
    results.write_result(dataclasses.replace(result, rows=[]), folder / "unused.json")
    assert results.read_result(folder / "good.json") == result
    document.write_text(
        "<!-- table: good -->\nold\n<!-- end -->\n<!-- table: gone -->\n<!-- end -->\n"
    )
    monkeypatch.setattr(results, "RESULTS", folder)
    monkeypatch.setattr(
        "benchmarks.__main__.current_texts", lambda: markdown_tables.current_texts([document])
    )
    expected = [
        "the result unused has no table in page.md",
        "the table gone has no result in benchmarks/results",
    ]
    assert main(["tables", "--check"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        *expected,
        "the table good differs from its result",
    ]
    assert main(["tables"]) == 1
    assert capsys.readouterr().err.splitlines() == expected
    text = document.read_text()
    assert "| a \\| b | 2.0 |\n| c |  |\n\nMachine: 2 CPUs. Date: not recorded." in text
    assert "- A note.\n<!-- end -->" in text and "old" not in text


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.long] if n == "watching" else []) for n in CHEAP],
)
def test_a_cheap_measurement_runs(name: str, tmp_path: Path) -> None:
    """It prints its table, and writes the same rows as JSON with the environment and the date."""
    options, count = CHEAP[name]
    path = tmp_path / "result.json"
    done = benchmarks("run", name, *options, "--write", path)
    assert done.returncode == 0, done.stderr
    result = results.read_result(path)
    assert result.measurement == name and len(result.rows) == count
    assert {"torch", "python", "cpu_count"} <= set(result.environment) and result.date
    for line in markdown_tables.heading_lines(result.columns):
        assert line in done.stdout
    for row in result.rows:
        assert markdown_tables.row_line(result.columns, row) in done.stdout


def test_the_recorded_grouping_is_what_the_rules_give() -> None:
    """The sightings are in the repository, so the recorded table must not differ from a new
    one.
    """
    recorded = results.read_result(results.RESULTS / "grouping.json")
    loaded, _ = measurement.load_measurement("grouping")
    parser = measurement.OneLineParser()
    loaded.add_options(parser)
    assert list(loaded.measure_rows(parser.parse_args([]))) == recorded.rows


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("measure",), "invalid choice: 'measure'"),
        (("run",), "required: name"),
        (("run", "statup"), "there is no measurement 'statup'; did you mean 'startup'?"),
        (("run", "startup", "--rounds", "0"), "'0' is not an integer above 0"),
        (("run", "startup", "--bogus"), "unrecognized arguments: --bogus"),
        (("run", "startup", "--write", "/tmp"), "is a folder"),
        (("run", "hangs", "--only", "python_lop"), "did you mean 'python_loop'?"),
        (("run", "hangs", "--stall", "nan"), "'nan' is not a number of seconds above 0"),
        (("run", "grouping", "--sightings", "absent"), "'absent' is not a file"),
        (("run", "minimization", "--modes", "both"), "invalid choice: 'both'"),
        (("run", "redacted_repros", "--keep", "/"), "--keep: '/' exists"),
        (("run", "collect_sightings", "--python", "/absent"), "--python: cannot run /absent"),
        (("tables", "--chek"), "unrecognized arguments: --chek"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_bad_input_is_one_line_and_exit_code_2(words: tuple[str, ...], message: str) -> None:
    """The line says what is wrong."""
    done = benchmarks(*words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("benchmarks: ")
    assert message in done.stderr


def test_an_interrupted_measurement_keeps_its_rows() -> None:
    """After Ctrl+C the result has the rows that are complete, and says so."""

    def interrupted_rows(options: object):  # type: ignore[no-untyped-def]
        yield {"name": "a"}
        raise KeyboardInterrupt

    columns = (results.Column("name", "name"),)
    seen: list[results.Row] = []
    options = measurement.OneLineParser().parse_args([])
    result = measurement.Measurement(columns, interrupted_rows).run_measurement(
        "x", "x", options, seen.append
    )
    assert result.rows == seen == [{"name": "a"}]
    assert result.notes == ("The run was interrupted after 1 rows.",) and not result.is_complete


def test_a_case_that_cannot_be_measured_ends_the_run_with_a_line() -> None:
    """The line has the message of reprokit, and the exit code is 1."""
    done = benchmarks("run", "watching", "--model", "absent")
    assert (done.returncode, done.stderr) == (1, "")
    assert "The run failed after 0 rows: the capture failed: " in done.stdout
    assert "'absent'" in done.stdout


def test_a_child_is_ended_at_its_limit_with_its_own_children() -> None:
    """The status is None, the output is kept, and CPU seconds count those of descendants."""
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    done = run_child(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spin!r}]); sys.exit(3)",
        ]
    )
    assert done.status == 3 and done.cpu_s > 0.3
    late = "import subprocess, sys\nprint('begins', flush=True)\nsubprocess.run(['sleep', '300'])"
    done = run_child([sys.executable, "-c", late], limit_s=1)
    assert (done.status, done.out) == (None, "begins\n") and done.wall_s < 60


def test_a_program_that_prints_nothing_more_is_ended(tmp_path: Path) -> None:
    """Its lines have both streams, its own children end too, and a signal is a line."""
    seen: list[int] = []
    late = "import subprocess; print(1, flush=True); subprocess.run(['sleep', '300'])"
    words = ({**os.environ, "MARK": str(tmp_path)}, tmp_path, CALL_TIMEOUT_S)
    done = run_printed([sys.executable, "-c", late], *words, 1.0, seen.append)
    assert (done.status, done.text, len(seen)) == (None, "1", 1)
    assert not survivors_after_wait(str(tmp_path))
    crash = "import os, sys; print(2, file=sys.stderr, flush=True); os.kill(os.getpid(), 11)"
    both = joined(done, run_printed([sys.executable, "-c", crash], *words))
    assert (both.status, both.text) == (-11, "1\n2\nSegmentation fault")
    assert both.lines[1].after_s >= done.wall_s


def test_an_answer_is_judged_by_its_text(tmp_path: Path) -> None:
    """A line of the program counts in each form of it, and a hang needs the lines of both locks."""
    case = first_answer_cases.CASES["hang"]
    rows = case.path.read_text().splitlines()
    one, two = (next(n for n, row in enumerate(rows, 1) if piece in row) for piece in case.lines)
    text = f'serve (idle)\n  serve (server.py:{one})\n  File "/a/server.py", line {two}, in report'
    assert facts_of(case, text) == {"what": True, "line": True, "party": False, "action": False}
    assert not facts_of(case, f"server.py:{one} server.py:{two}0")["line"]
    done = run_printed([sys.executable, "-c", f"print({text!r})"], os.environ, tmp_path, 60.0)
    assert place_of_line(case, done) == 3
    for case in first_answer_cases.CASES.values():
        compile(case.path.read_text(), case.program, "exec")
        assert case.line_patterns()


def test_each_server_says_what_is_true_about_it() -> None:
    """A fault has 1 to 3 marked lines, words and an issue; a healthy program has none of them."""
    for case in server_cases.load_cases().values():
        text = case.path.read_text()
        compile(text, case.name, "exec")
        assert {"Truth", "Run", "Attach"} <= set(case.fields) and text.count("\n") <= 65, case.name
        if case.mode:
            assert not case.hang_lines() and not case.words, case.name
        else:
            assert 1 <= len(case.hang_lines()) <= 3 and case.words, case.name
            assert "https://github.com/" in text, case.name


def test_what_attach_says_about_a_server_is_judged_by_its_text() -> None:
    """A line counts as each tool writes it, and a word of the cause does not as a part of a path."""
    case = server_cases.load_cases()["gunicorn_fork_lock"]
    (line,) = case.hang_lines()
    answer = [
        "hang: Process 7 made no progress for 9 s, outside of the compiler.",
        f"waits      lock-deadlock: waits for a lock at gunicorn_fork_lock.py:{line} in app",
    ]
    assert verdict_of("\n".join(answer)) == "hang, lock-deadlock"
    assert not has_words(case, "\n".join(answer))
    assert has_words(case, "the lock was held at the fork")
    for form in (
        answer[1],
        f"app ({case.path.name}:{line})",
        f'"a/{case.path.name}", line {line}, in',
    ):
        assert Told(["first", form], 1.0).places(case) == [2]
    assert not Told([f"{case.path.name}:{line}0"], 1.0).places(case)
    assert verdict_of("ok: Process 7 is idle.") == "ok, idle"
    assert verdict_of("hang in collective: Process 7 waits.\nwaits   a-b: c") == "hang, a-b"


def test_helpers_of_measurements() -> None:
    """Order, exponents, sizes of repros, tracebacks and paths."""
    assert with_json_option(["nightly", "run"]) == ["nightly", "run", "--json"]
    assert with_json_option(["capture", "--", "a"]) == ["capture", "--json", "--", "a"]
    assert in_turns(("a", "b"), 2) == ["a", "b", "b", "a"]
    assert growth_exponents([1, 2, 4], [1.0, 2.0, 8.0]) == (1.5, 2.0)
    repro = (
        "import torch\n\n# comment\ndef f(x):\n    return torch.sin(x) + 1\ntorch.compile(f)(1)\n"
    )
    assert (count_lines(repro), count_operators(repro)) == (4, 2)
    assert count_operators("torch.compile(torch.erf)") == 1
    trace = "Traceback\nValueError: backend failed\nKeyError: 'buf0'\n"
    assert last_failure(trace) == Failure("ValueError", "backend failed\nKeyError: 'buf0'")
    assert last_failure("nothing") == Failure()
    text = "/opt/x/site-packages/torch/a.py and /tmp/work/b.py"
    assert without_paths({"a": [text]}) == {"a": ["<site-packages>/torch/a.py and <folder>/b.py"]}


def test_each_case_is_a_program() -> None:
    """Scripts compile, and each named factory exists."""
    cases = minimization_cases
    for failure in (*cases.FAILURES.values(), *cases.EXPORTED_FAILURES.values()):
        compile(failure.script, "script", "exec")
    for program in redaction_cases.PROGRAMS.values():
        compile(program.script, "script", "exec")
    for name, case in sighting_cases.CASES.items():
        assert (
            ROOT / "benchmarks/cases/known_bugs" / factory_target(name, case).split(":")[0]
        ).exists()
        assert len(list(sighting_cases.variants_of(case, False))) == 1 + len(case.hosts) + len(
            case.variations
        )
    silent = (ROOT / "benchmarks/cases/known_bugs/silent.py").read_text()
    for name in silent_cases.EXPECTED_KINDS:
        assert f"\ndef {name}(" in silent


def test_a_sighting_that_is_recorded_is_not_collected_again() -> None:
    """The file of the factory does not count, so lines with its earlier path are recognised."""
    lines = [json.loads(line) for line in SIGHTINGS.read_text().splitlines()]
    recorded = {run_key(line["target"], line["settings"], line["torch"]) for line in lines}
    case = sighting_cases.CASES["keyerror_buf"]
    for variant in sighting_cases.variants_of(case, is_few=False):
        settings = settings_of(case, variant)
        target = factory_target("keyerror_buf", case)
        assert run_key(target, settings, "2.13.0+cpu") in recorded
        assert run_key(target, settings, "2.0.0") not in recorded
