"""What a factory may return, and the error line for everything else. The command line prints these
lines unchanged.
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
def bad_entry(): return {"model": len, "entry": "jit"}
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
    "bad_entry": "\"entry\" that is 'jit'; use one of torch.compile, nn.Module.compile, export",
    "bad_compile": "not a dict of arguments for torch.compile",
    "bad_kwargs": "where kwargs, a dict, belongs",
    "exits_well": "called sys.exit(0)",
}


def build(path: Path, name: str, **knobs: Any) -> factory.BuiltTarget:
    return factory.call_factory(
        factory.find_factory("file", str(path), name), f"{path.name}:{name}", knobs
    )


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's folder is put on sys.path, as Python does for a script."""
    monkeypatch.syspath_prepend(".")


@pytest.mark.parametrize("name", LINES)
def test_a_wrong_return_value_of_a_factory_is_an_error(name: str, write: Any) -> None:
    """One line says what the factory returned and what it must return."""
    with pytest.raises(BadTarget) as error:
        build(write("factory_targets.py", TARGETS), name)
    assert LINES[name] in str(error.value) and "\n" not in str(error.value)


def test_a_factory_gets_the_arguments_that_it_accepts(write: Any) -> None:
    """An argument that the factory does not accept is reported with the option that passed it."""
    path = write("factory_targets.py", TARGETS)
    assert build(path, "good", layers=7).calls == [(([7],), {})] or build(
        path, "good", layers=7
    ).calls == [((7,), {})]
    with pytest.raises(BadTarget, match="takes no batch_size, so --batch-size cannot be used"):
        build(path, "good", batch_size=3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def make(:\n", "SyntaxError"),
        ("import sys\nsys.exit(1)\n", "importing it called sys.exit"),
    ],
)
def test_a_file_that_cannot_be_imported(text: str, says: str, write: Any) -> None:
    """The line names the file and the reason."""
    with pytest.raises(BadTarget, match=says):
        build(write("factory_broken.py", text), "make")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("MemoryError()", MemoryError),
        ("RuntimeError('DefaultCPUAllocator: can\\'t allocate memory')", RuntimeError),
        ("RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')", RuntimeError),
    ],
)
def test_a_factory_without_enough_memory_is_not_wrong(
    error: str, kind: type[Exception], write: Any
) -> None:
    """The error leaves the factory unchanged, and any other is a line about the factory."""
    text = "def make(): raise {}\n"
    with pytest.raises(kind):
        build(write("factory_memory.py", text.format(error)), "make")
    with pytest.raises(BadTarget, match=r"failed: RuntimeError: no \(line 1 of factory_wrong"):
        build(write("factory_wrong.py", text.format("RuntimeError('no')")), "make")
