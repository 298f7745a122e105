"""The names of what holds an object are found through what refers to it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.agent.target import call_holders

PROGRAM = """
KEPT = {}
NUMBERS = []

class Node:
    def __init__(self, before):
        self.before = before

LAST = Node(Node(None))

def call():
    KEPT[len(KEPT)] = NUMBERS
"""


@pytest.mark.parametrize(
    ("held", "path", "line"),
    [
        (lambda m: m.KEPT, ["grows.KEPT"], 2),
        (lambda m: m.NUMBERS, ["grows.NUMBERS"], 3),
        (lambda m: m.LAST.before, ["grows.LAST", ".before"], 9),
    ],
)
def test_a_global_variable_is_the_name(
    held: Any, path: list[str], line: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary too, although the namespace of its module is one."""
    (tmp_path / "grows.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "grows", raising=False)
    module = importlib.import_module("grows")
    search = call_holders._Search(ignored=())
    found = search.find_path(held(module))
    assert found == (path, f"{tmp_path}/grows.py:{line}")
