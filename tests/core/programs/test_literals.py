"""What is written in a program is computed, and short loops and context managers are written
out.
"""

from __future__ import annotations

import contextlib

import pytest

from reprokit.core.reduce.passes import context_managers, inline_classes, literals
from tests.support.program_output import printed


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("print({'a': len, 'b': max}['b']([1, 2]))", "print(max([1, 2]))"),
        ("print({'a': 1}.get('b', 2), {'a': 1}.get('a'), {1: 2}.get(3))", "print(2, 1, None)"),
        ("print([1, 2][-1], (3, 4)[0])", "print(2, 3)"),
        ("print(getattr(len, '__name__'))", "print(len.__name__)"),
        ("print(next(iter((3, 4))), next(iter({5: 6})))", "print(3, 5)"),
        ("print(1 if 'a' == 'a' else 2)", "print(1)"),
        ("if not 1 < 2:\n    print(1)\nelse:\n    print(2)", "print(2)"),
        ("print(None is None and len('a') and 3)", "print(len('a') and 3)"),
        ("print(0 or '' or 5, 3 or len('a'), 0 or '')", "print(5, 3, '')"),
        (
            "c = {'n': {'size': 3}, 'b': None}\nprint(c['n']['size'] if c.get('b') is None else 4)",
            "c = {'n': {'size': 3}, 'b': None}\nprint(3)",
        ),
        (
            "for k, v in {'a': 1, 'b': 2}.items():\n    print(k, v)",
            "k, v = ('a', 1)\nprint(k, v)\nk, v = ('b', 2)\nprint(k, v)",
        ),
        ("for v in {'a': 1}.values():\n    print(v)", "v = 1\nprint(v)"),
        ("for v in (3, 4):\n    print(v)", "v = 3\nprint(v)\nv = 4\nprint(v)"),
    ],
)
def test_a_value_that_is_written_is_computed(program: str, expected: str) -> None:
    """Lookups, conditions, names of attributes, settings and loops."""
    reduced = literals.compute_literals(program, lambda text: printed(text) == printed(program))
    assert reduced.strip() == expected


@pytest.mark.parametrize(
    "program",
    [
        "print({1: 2}[len('a')])",
        "c = {'n': 1}\nc['n'] = 2\nprint(c['n'])",
        "c = {'n': 1}\ndef f(c):\n    return c['n']\nprint(f({'n': 2}))",
        "for v in (1, 2):\n    if v:\n        break",
        "for v in (1, 2, 3, 4, 5):\n    print(v)",
        "print([*[1], 2][0])",
        "print('a' < len)",
        "print(next(iter(input())).strip())",
        "print(next(iter([]) or 3))",
        "print(getattr(3, 'class'), getattr(3, 'real', None))",
        "print({**{'a': 1}, 'b': 2}['a'])",
    ],
)
def test_what_is_not_known_stays(program: str) -> None:
    """A changed setting, a parameter, an unknown key, a loop that ends early or is long."""

    def test(text: str) -> bool:
        with contextlib.suppress(Exception):
            return printed(text) == expected
        return False

    expected = ""
    with contextlib.suppress(Exception):
        expected = printed(program)
    assert literals.compute_literals(program, test) == program


MANAGER = """
from contextlib import contextmanager

@contextmanager
def group(name, size=2):
    print('begin', name, size)
    try:
        yield (name, size)
    finally:
        print('end')

with group('a') as (rank, world):
    print(rank, world)
print('after')
"""


def test_a_context_manager_is_written_around_its_block() -> None:
    """The statements before and after its ``yield`` stay in order, also with ``finally``."""
    expected = printed(MANAGER)
    reduced = context_managers.inline_contexts(MANAGER, lambda text: printed(text) == expected)
    assert "yield" not in reduced and "def group" not in reduced and "with " not in reduced
    assert printed(reduced) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("with group('a')", "with group(*['a'])"),
        ("    try:\n        yield", "    for _ in (1,):\n     yield"),
    ],
)
def test_other_context_managers_stay(old: str, new: str) -> None:
    """Unknown arguments, or a ``yield`` in a loop."""
    program = MANAGER.replace(old, new).replace(
        "    finally:\n        print('end')\n",
        "" if "for" in new else "    finally:\n        print('end')\n",
    )
    assert context_managers.inline_contexts(program, lambda text: True) == program


RECURSIVE = """
from contextlib import contextmanager

@contextmanager
def nested(n):
    if n > 0:
        with nested(n - 1):
            print(n)
    yield n

with nested(3):
    print('in')
"""


def test_a_recursive_context_manager_stays() -> None:
    """Each step would make the program longer."""
    assert context_managers.inline_contexts(RECURSIVE, lambda text: True) == RECURSIVE


def test_a_context_manager_with_other_parameters_stays() -> None:
    """Positional parameters are not followed."""
    program = MANAGER.replace("def group(name, size=2):", "def group(name, size=2, /):")
    assert context_managers.inline_contexts(program, lambda text: True) == program


def test_unused_keyword_arguments_are_dropped() -> None:
    """A function with ``**kwargs`` that nothing reads could not be inlined."""
    program = "def make(name, **kwargs):\n    return [name]\nprint(make('a'))\n"
    reduced = inline_classes.inline_constants(program, lambda text: printed(text) == "['a']\n")
    assert "kwargs" not in reduced
