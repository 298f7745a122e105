"""A program keeps the condition of the exception that it raises only when it is compiled."""

from __future__ import annotations

import subprocess
import sys

import pytest

from reprokit.core.reduce import guarded_raises

OBSERVED = "torch._dynamo.exc.ObservedValueError: raised exception ValueError('no length')"
GUARDED = "def back(x):\n    if x:\n        raise ValueError('no length')\n"
ALWAYS = "def back(x):\n    raise ValueError('no length')\n"
ASSERTS = "def back(x):\n    assert not x, 'no length'\n"


@pytest.mark.parametrize(
    ("text", "failure", "status"),
    [
        (f"{GUARDED}back(0)\n", OBSERVED, 0),
        (GUARDED, OBSERVED, 1),
        (ALWAYS, OBSERVED, 1),
        (f"class A:\n    def f(self):\n        for x in [0]:\n{'    ' * 3}if x:\n"
         f"{'    ' * 4}raise ValueError('no length')\nA().f()\n", OBSERVED, 0),
        (f"{ASSERTS}back(0)\n", "AssertionError: no length", 0),
        (ASSERTS, "x.ObservedAssertionError: raised exception AssertionError('no')", 1),
    ],
)  # fmt: skip
def test_eager_must_reach_the_statement_that_can_raise(
    text: str, failure: str, status: int
) -> None:
    """A function that is not called, or that always raises, does not have the defect."""
    checked = guarded_raises.with_check(text, failure)
    done = subprocess.run([sys.executable, "-c", checked], capture_output=True, check=False)
    assert done.returncode == status, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        GUARDED.replace("no length", "another one"),
        GUARDED.replace("ValueError", "KeyError"),
        "def f(:\n",
        "x = 1\n",
        f"{GUARDED}# \x00",
    ],
)
def test_a_program_without_such_a_statement_has_no_check(text: str) -> None:
    """The exception may be one of torch, or of a different statement."""
    assert guarded_raises.with_check(text, OBSERVED) == ""
