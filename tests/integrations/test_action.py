"""The GitHub Action: its steps are run with bash, as the runner of GitHub runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from reprokit.integrations import job_summary
from tests.support.environments import ROOT, clean_environ

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


class Job:
    """One job whose only step is the action."""

    def __init__(self, folder: Path, **inputs: str) -> None:
        self.folder = folder
        self.summary, self._output = folder / "summary.md", folder / "output.txt"
        self.values = {f"inputs.{name}": row["default"] for name, row in ACTION["inputs"].items()}
        self.values |= {f"inputs.{name.replace('_', '-')}": text for name, text in inputs.items()}
        self.values |= {"inputs.python": sys.executable, "github.action_path": str(ROOT)}
        self.summary.touch()
        self._output.touch()

    def run(self) -> tuple[int, str]:
        """Run the steps with ``run:``; return the exit code of the first that fails, and all output."""
        output = ""
        for step in STEPS:
            if "run" not in step:
                continue
            script = self.folder / "step.sh"
            script.write_text(step["run"])
            variables = {name: self._value(text) for name, text in step.get("env", {}).items()}
            environ = clean_environ(
                **variables,
                GITHUB_OUTPUT=str(self._output),
                GITHUB_STEP_SUMMARY=str(self.summary),
                PATH=os.environ["PATH"],
            )
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
                cwd=self.folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            output += done.stdout
            for line in self._output.read_text().splitlines():
                name, _, value = line.partition("=")
                self.values[f"steps.run.outputs.{name}"] = value
            if done.returncode:
                return done.returncode, output
        return 0, output

    def _value(self, text: str) -> str:
        return _EXPRESSION.sub(lambda match: self.values.get(match[1], ""), text)


def test_no_expression_is_text_of_a_script() -> None:
    """Inputs reach bash only through variables, names are in kebab-case, and each has a text."""
    for step in STEPS:
        assert "${{" not in step.get("run", "")
        assert ("shell" in step) == ("run" in step)
        for text in step.get("env", {}).values():
            assert _EXPRESSION.fullmatch(text)
    for name, row in ACTION["inputs"].items():
        assert re.fullmatch("[a-z]+(-[a-z]+)*", name) and row["description"]
    (upload,) = [step for step in STEPS if "uses" in step]
    assert upload["uses"].startswith("actions/upload-artifact@") and "always()" in upload["if"]


SUITE = """\
import sys
import pytest

@pytest.mark.reprokit
@pytest.mark.parametrize("word", ["a b", "$(touch pwned)"])
def test_fails(word):
    raise KeyError(word)

def test_passes():
    pass
"""


def test_pytest_is_run_and_the_summary_has_its_packs(tmp_path: Path) -> None:
    """The exit code is that of pytest, words keep their quotes, nothing in an input is run, and the
    summary has a row for each pack.
    """
    (tmp_path / "test_ci.py").write_text(SUITE)
    job = Job(
        tmp_path,
        pytest_args="-n 0 -k 'fails or passes' '$(touch never)'/../test_ci.py",
        output_dir="my packs",
        version="installed",
    )
    (tmp_path / "$(touch never)").mkdir()
    status, output = job.run()
    assert status == 1 and "2 failed, 1 passed" in output, output
    assert job.values["steps.run.outputs.packs"] == "2"
    assert not (tmp_path / "never").exists() and not (tmp_path / "pwned").exists()
    summary = job.summary.read_text()
    assert summary.startswith("### reprokit: 2 captured\n")
    assert summary.count("| `test_ci.py::test_fails[") == 2
    assert summary.count("`reprokit-") == 2 and "error-in-eager: KeyError" in summary


def test_a_command_is_captured(tmp_path: Path) -> None:
    """The command line is read by bash, and its failure is that of the job."""
    text = 'python -c "raise SystemExit(0)" && test "$HOME" && kill -SEGV $$'
    job = Job(tmp_path, command=text, version="installed")
    status, output = job.run()
    assert status == 1 and job.values["steps.run.outputs.packs"] == "1", output
    summary = job.summary.read_text()
    assert "### reprokit: 1 captured" in summary and "SIGSEGV" in summary


@pytest.mark.parametrize("inputs", [{}, {"command": "true", "pytest_args": "tests"}])
def test_one_of_two_inputs_is_needed(tmp_path: Path, inputs: dict[str, str]) -> None:
    """Neither and both of command and pytest-args are one error line."""
    status, output = Job(tmp_path, version="installed", **inputs).run()
    assert status == 2 and "::error::give exactly one of the inputs" in output


def test_the_summary_shows_texts_of_a_failure_as_code(tmp_path: Path) -> None:
    """A message of a failure adds neither rows nor markup to the summary."""
    captures = tmp_path / "captures.json"
    captures.write_text(
        '{"captures": [{"nodeid": "a|b", "outcome": "failed", "sentence": "x\\n`<img>` | y",'
        ' "signature": "", "pack": "/p/reprokit-a.tar.gz"}]}'
    )
    (row,) = [
        line for line in job_summary.summary_of_folder(tmp_path).splitlines() if "img" in line
    ]
    assert row == "| `a\\|b failed` | `x '<img>' \\| y` |  | `reprokit-a.tar.gz` |"
    assert job_summary.summary_of_folder(tmp_path / "none") == ""
