"""The pytest plugin, in suites that users could have."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import psutil
import pytest

from reprokit.host.pack import reader
from reprokit.integrations import captured_test
from tests.support.environments import ROOT, clean_environ
from tests.support.reprokit_calls import CallResult

SAMPLE_SUITE = Path(__file__).parent / "sample_suite" / "compile_failures.py"
TIMEOUT_S = 800


def run_pytest(folder: Path, *words: str) -> CallResult:
    """Run pytest in a folder with a suite, as a user does."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=clean_environ(PYTEST_DISABLE_PLUGIN_AUTOLOAD=""),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return CallResult(done.returncode, done.stdout, done.stderr)


def outcomes(path: Path) -> dict[str, str]:
    """Return the outcome of each test in a JUnit file."""
    return {
        str(case.get("name")).rpartition("::")[2]: (
            next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "")
            or "passed"
        )
        for case in ET.parse(path).getroot().iter("testcase")
    }


@pytest.mark.real("it captures an exception, a hang and a crash of a suite")
def test_a_suite_continues_to_its_end_and_names_its_packs(tmp_path: Path) -> None:
    """With two workers of xdist, an exception, a hang and a crash under torch.compile leave packs
    of the right kinds, a failure without torch.compile leaves none, healthy tests pass, and the
    outcomes and the exit code are those of pytest.
    """
    suite = SAMPLE_SUITE.read_text()
    hang = "def test_hang("
    assert hang in suite
    # only this test waits for its limit: on a busy machine the others may need more
    suite = suite.replace(hang, f"@pytest.mark.reprokit(timeout='25s')\n{hang}")
    (tmp_path / "test_compile.py").write_text(suite)
    (tmp_path / "pytest.ini").write_text("[pytest]\nreprokit_output_dir = packs\n")
    words = ("-n", "2", "--reprokit", "--junitxml", "junit.xml")
    done = run_pytest(tmp_path, *words)
    assert done.status == 1, done.out + done.err
    assert "4 failed, 2 passed" in done.out
    answers = json.loads((tmp_path / "packs" / "captures.json").read_text())
    captures = {row["nodeid"].rpartition("::")[2]: row for row in answers["captures"]}
    assert {name: (row["outcome"], row["verdict"]) for name, row in captures.items()} == {
        "test_exception": ("failed", "exception"),
        "test_crash": ("crashed", "crash"),
        "test_hang": ("hung", "hang"),
    }, done.out
    for row in captures.values():
        assert f"{row['nodeid']} {row['outcome']}\n  {row['sentence']}\n" in done.out
        assert f"  pack   {row['pack']}\n" in done.out
        verdict = json.loads(reader.read_pack(Path(row["pack"])).files["verdict.json"])
        assert verdict["kind"] == row["verdict"]
    assert "KeyError" in captures["test_exception"]["sentence"]
    assert captures["test_exception"]["sentence"].startswith("exception in codegen: ")
    assert "SIGSEGV" in captures["test_crash"]["sentence"]
    assert captures["test_hang"]["sentence"].startswith("hang in fx-passes: ")
    seen = outcomes(tmp_path / "junit.xml")
    assert {
        "test_shape": "passed",
        "test_dtype": "passed",
        "test_exception": "failure",
    }.items() <= (seen.items())


OWN_OPERATOR = """\
import torch

@torch.library.custom_op("shop::turn", mutates_args=())
def turn(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous().t()

@turn.register_fake
def _(x):
    return torch.empty_like(x)

def test_turn():
    torch.compile(lambda x: turn(x) + 1)(torch.randn(3, 4))
"""


@pytest.mark.real("it runs a suite with reprokit")
def test_the_summary_names_the_operator_of_the_suite(tmp_path: Path) -> None:
    """Not only the sizes and strides that the generated code found."""
    (tmp_path / "test_shop.py").write_text(OWN_OPERATOR)
    done = run_pytest(tmp_path, "--reprokit", "--reprokit-output-dir", "packs")
    assert done.status == 1, done.out + done.err
    (row,) = json.loads((tmp_path / "packs" / "captures.json").read_text())["captures"]
    assert row["sentence"] == (
        "exception in kernel-run: The fake kernel of shop::turn disagrees with its real result."
    )
    assert row["sentence"] in done.out


CHEAP_SUITE = """\
import os, signal, subprocess
import pytest

@pytest.fixture(scope="module")
def once():
    with open("fixtures.txt", "a") as file:
        file.write("made\\n")

@pytest.fixture(scope="session")
def state():
    return []

def test_first(once, state):
    state.append(1)

@pytest.mark.reprokit(options="--no-trace")
def test_passes_alone(once, state):
    assert not state

def test_crash(once):
    os.kill(os.getpid(), signal.SIGSEGV)

@pytest.mark.reprokit(timeout='2s')
def test_hang():
    subprocess.run(["sleep", "97531"])

@pytest.mark.reprokit(enabled=False)
def test_not_captured():
    raise KeyError("quiet")

@pytest.mark.xfail
@pytest.mark.reprokit
def test_expected():
    raise KeyError("expected")

def test_last(once):
    pass
"""


def test_crashes_and_hangs_do_not_end_a_suite(tmp_path: Path) -> None:
    """Without -n, too, the tests after a crash and a hang run, the children of a hanging test end,
    fixtures keep their scope, markers choose what is captured, and a test that passes alone is
    reported as such.
    """
    (tmp_path / "test_cheap.py").write_text(CHEAP_SUITE)
    words = ("--reprokit", "--reprokit-max", "1", "--reprokit-output-dir", "packs")
    done = run_pytest(tmp_path, "-v", *words, "--junitxml", "junit.xml", "test_cheap.py")
    assert done.status == 1, done.out + done.err
    assert "4 failed, 2 passed, 1 xfailed" in done.out
    assert "The test did not end within 2 s, and reprokit ended it." in done.out
    assert (
        "test_cheap.py::test_passes_alone failed\n"
        "  ok: it failed among the other tests and passes alone\n"
    ) in done.out
    for left_out in ("test_crash", "test_hang"):
        assert f"test_cheap.py::{left_out} was not captured: --reprokit-max is 1" in done.out
    answers = json.loads((tmp_path / "packs" / "captures.json").read_text())
    assert len(answers["captures"]) == 1
    assert [name.rpartition("::")[2] for name in answers["left_out"]] == ["test_crash", "test_hang"]
    command = (tmp_path / "packs").glob("*/run-001/run.json")
    words = json.loads(next(command).read_text())["target"]["command"]
    assert words[-1] == "test_cheap.py::test_passes_alone" and "--junitxml" not in words
    made = (tmp_path / "fixtures.txt").read_text().count("made")
    assert made <= 4  # once in each of at most three workers, and in the capture
    assert not [p for p in psutil.process_iter(["cmdline"]) if "97531" in (p.info["cmdline"] or ())]
    assert set(outcomes(tmp_path / "junit.xml")) >= {"test_first", "test_last", "test_not_captured"}


IN_PROCESS = """\
import sys
import pytest

@pytest.mark.reprokit(timeout="soon", enabled=False)
def test_wrong_marker():
    pass

@pytest.mark.reprokit
def test_fails():
    assert sys.modules.get("xdist.remote") is None
    raise KeyError("in this process")
"""


def test_the_ini_file_turns_the_plugin_on(tmp_path: Path) -> None:
    """With -n 0 the tests run in pytest's own process, the ini file has all settings, and options
    of the command line go to the capture unless they belong to the session.
    """
    (tmp_path / "test_one.py").write_text(IN_PROCESS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers\nreprokit = true\nreprokit_output_dir = kept\n"
        "reprokit_timeout = 50s\nreprokit_options = --no-minimize --no-ablate --stall 7\n"
    )
    done = run_pytest(tmp_path, "-n", "0", "-W", "ignore::UserWarning")
    assert "the marker reprokit: timeout: 'soon' is no duration such as 90s or 10m" in done.out
    assert done.status == 1 and "so a crash or a hang ends the session" in done.out
    assert "test_one.py::test_fails failed\n  error-in-eager: KeyError was raised" in done.out
    request = json.loads(next((tmp_path / "kept").glob("*/run-001/run.json")).read_text())
    assert (request["deadline_s"], request["stall_s"]) == (110, 7)
    assert {"--strict-markers", "-W", "ignore::UserWarning"} <= set(request["target"]["command"])
    off = run_pytest(tmp_path, "--no-reprokit", "-n", "0")
    assert off.status == 1 and "reprokit:" not in off.out


def test_a_crash_in_the_collection_ends_the_session(tmp_path: Path) -> None:
    """A module that crashes its worker is reported once; no further worker is started."""
    (tmp_path / "test_bad.py").write_text("import os\nos.kill(os.getpid(), 11)\n")
    done = run_pytest(tmp_path, "--reprokit")
    assert done.status == 3, done.out + done.err
    assert "a worker process crashed while it collected the tests" in done.out + done.err


IS_LIGHT = """\
import sys

def test_light():
    loaded = {name for name in sys.modules if name.startswith("reprokit.")}
    assert loaded == {"reprokit.integrations", "reprokit.integrations.pytest_plugin", "reprokit.integrations.session_settings"}
    assert not {"torch", "psutil", "click"} & set(sys.modules)
"""


def test_the_plugin_costs_nothing_without_its_option(tmp_path: Path) -> None:
    """Without --reprokit only one small module is imported, and xdist runs no worker."""
    (tmp_path / "test_light.py").write_text(IS_LIGHT)
    done = run_pytest(tmp_path)
    assert done.status == 0 and "1 passed" in done.out and "worker" not in done.out, done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--reprokit", "-p", "no:xdist"), "pip install 'reprokit[pytest]'"),
        (("--reprokit", "--reprokit-timeout", "0"), "'0' is no duration such as 90s or 10m"),
        (
            ("--reprokit", "--reprokit-options", "'"),
            '--reprokit-options "\'": No closing quotation',
        ),
        (("--reprokit", "-o", "reprokit_max=many"), "'many' is not a number of captures"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    """A missing plugin and a wrong value give pytest's usage error."""
    done = run_pytest(tmp_path, *words)
    assert done.status == 4 and message in done.err and "Traceback" not in done.err, done.err


@pytest.mark.parametrize(
    ("words", "places", "kept"),
    [
        ("-k tests --cov src tests -x", ["tests"], "-k tests -x"),
        ("-n2 --dist=loadfile -p xdist --lf", [], "-p xdist"),
        ("--junitxml x.xml --basetemp=t --device cuda", [], "--device cuda"),
        ("--cov --timeout=3 -m gpu", [], "-m gpu"),
    ],
)
def test_a_capture_leaves_out_what_belongs_to_the_session(
    words: str, places: list[str], kept: str
) -> None:
    """Reports, workers, caches and other tests stay with the session; the other options are kept."""
    assert captured_test.options_of_one_test(words.split(), places) == kept.split()


def test_the_package_names_the_plugin() -> None:
    """pytest finds the plugin by its entry point."""
    assert (
        'reprokit = "reprokit.integrations.pytest_plugin"' in (ROOT / "pyproject.toml").read_text()
    )
