"""What a factory may give, and the line for what it may not; the command line shows these lines as
they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reprokit.agent.target import factory
from reprokit.core.shared.errors import BadTarget

TARGETS = """
import sys
def number(): return 42
def empty(): pass
def not_callable(): return {"model": 3}
def unknown_key(): return {"model": len, "inputs": ()}
def bad_calls(): return {"model": len, "calls": [1]}
def bad_compile(): return {"model": len, "compile": "fast"}
def bad_kwargs(): return len, (), 3
def exits_well(): sys.exit(0)
def good(layers=1): return len, ([layers],)
thing = 3
"""
LINES = {
    "nothing": "has no 'nothing'; it has bad_calls",
    "thing": "is an int, not a function",
    "number": "returned an int; a factory returns (model, args)",
    "empty": "returned None; a factory returns",
    "not_callable": "a model that is an int, which cannot be called",
    "unknown_key": "unknown keys inputs",
    "bad_calls": "not a list of (args, kwargs)",
    "bad_compile": "not a dict of arguments for torch.compile",
    "bad_kwargs": "where kwargs, a dict, belongs",
    "exits_well": "called sys.exit(0)",
}


def made(path: Path, name: str, **knobs: Any) -> factory.BuiltTarget:
    return factory.call_factory(
        factory.find_factory("file", str(path), name), f"{path.name}:{name}", knobs
    )


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's folder is put on the path, as Python does it for a script."""
    monkeypatch.syspath_prepend(".")


@pytest.mark.parametrize("name", LINES)
def test_what_a_factory_may_not_give(name: str, write: Any) -> None:
    """One line that says what it gave and what it should."""
    with pytest.raises(BadTarget) as told:
        made(write("factory_targets.py", TARGETS), name)
    assert LINES[name] in str(told.value) and "\n" not in str(told.value)


def test_a_factory_gets_the_knobs_that_it_takes(write: Any) -> None:
    """One that it does not take is named with the option that gave it."""
    path = write("factory_targets.py", TARGETS)
    assert made(path, "good", layers=7).calls == [(([7],), {})] or made(
        path, "good", layers=7
    ).calls == [((7,), {})]
    with pytest.raises(BadTarget, match="takes no batch_size, so --batch-size cannot be used"):
        made(path, "good", batch_size=3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def make(:\n", "SyntaxError"),
        ("import sys\nsys.exit(1)\n", "importing it called sys.exit"),
    ],
)
def test_a_file_that_cannot_be_imported(text: str, says: str, write: Any) -> None:
    """The file is named, and why."""
    with pytest.raises(BadTarget, match=says):
        made(write("factory_broken.py", text), "make")
