"""Unit tests that are made of a repro."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.core.records.finding import identity_of_title
from reprokit.core.triage import unit_tests

EXCEPTION = identity_of_title(
    "exception: lowering | torch._inductor.exc.LoweringException: no such thing @ <user>:broken"
)
CRASH = identity_of_title("crash: kernel-run | SIGSEGV in <generated>:call")
# Python's own compile() stands for the compiler
FAILING = """import sys

LIMIT = 3


def f(x):
    return x + LIMIT


x = 1

# expected: no error
# happens:  SyntaxError
x = compile("=" * f(x), "name", "exec")
assert x
"""
PASSING = FAILING.replace('"=" * f(x)', '"1"')


def _run(tmp_path: Path, **texts: str) -> subprocess.CompletedProcess[str]:
    for name, text in texts.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("parts", [EXCEPTION, CRASH])
def test_a_test_fails_where_the_bug_is_and_passes_where_it_is_not(
    parts: object, tmp_path: Path
) -> None:
    """A crash would end the test runner, so its program is in a process of its own."""
    _, failing = unit_tests.unit_tests(FAILING, parts, "a note")  # type: ignore[arg-type]
    _, passing = unit_tests.unit_tests(PASSING, parts, "a note")  # type: ignore[arg-type]
    done = _run(tmp_path, failing=failing.text, passing=passing.text)
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, done.stdout
    assert "SyntaxError" in done.stdout and "FAILED test_failing.py::" in done.stdout


def test_the_text_has_the_style_of_pytorch() -> None:
    test, _ = unit_tests.unit_tests(FAILING, EXCEPTION, "https://github.com/a/b/issues/1")
    assert test.belongs_in == "test/inductor/test_torchinductor.py"
    assert test.text.startswith(
        '# Owner(s): ["module: inductor"]\nimport unittest\n\n'
        "from torch._inductor.test_case import run_tests, TestCase\n\nimport sys\n\nLIMIT = 3\n"
    )
    assert test.text.endswith(
        "class TestExceptionLoweringexceptionNoSuchThing(TestCase):\n"
        "    # https://github.com/a/b/issues/1\n"
        "    @unittest.expectedFailure  # delete this line with the fix\n"
        "    def test_exception_loweringexception_no_such_thing(self):\n"
        "        global x\n"
        "        # expected: no error\n"
        "        # happens:  SyntaxError\n"
        '        x = compile("=" * f(x), "name", "exec")\n'
        "        assert x\n\n\n"
        'if __name__ == "__main__":\n    run_tests()\n'
    )
    dynamo = identity_of_title("exception: dynamo-trace | Unsupported: no @ a")
    assert unit_tests.unit_tests(FAILING, dynamo, "x")[0].belongs_in == "test/dynamo/test_misc.py"


@pytest.mark.parametrize("parts", [EXCEPTION, CRASH])
def test_a_machine_that_cannot_show_the_failure_skips_the_test(
    parts: object, tmp_path: Path
) -> None:
    check = 'import sys\nif True:\n    print("x")\n    raise SystemExit(77)\n'
    program = FAILING.replace("import sys\n", check)
    _, plain = unit_tests.unit_tests(program, parts, "a note")  # type: ignore[arg-type]
    done = _run(tmp_path, one=plain.text)
    assert "1 skipped" in done.stdout, done.stdout


@pytest.mark.parametrize("text", ["x = (", "", 'compile("""\n""", "a", "exec")'])
def test_what_cannot_become_a_test_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        unit_tests.unit_tests(text, EXCEPTION, "a note")
