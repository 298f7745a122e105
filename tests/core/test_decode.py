"""Records that are converted to JSON are restored from it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from reprokit.core.records.dumps import Frame, Raised
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract.serialize import from_json, to_json
from tests.support.examples import examples
from tests.support.field_values import values_of_type


@settings(max_examples=examples(60))
@given(seen=values_of_type(Observation))
def test_an_observation_survives_json(seen: Observation) -> None:
    """Each field of it survives, at any depth."""
    assert from_json(Observation, json.loads(json.dumps(to_json(seen)))) == seen


@settings(max_examples=examples(60))
@given(verdict=values_of_type(Verdict))
def test_a_verdict_survives_json(verdict: Verdict) -> None:
    """The verdict of a pack is restored."""
    assert from_json(Verdict, json.loads(json.dumps(to_json(verdict)))) == verdict


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Frame, {"file": "a.py"}),
        (Frame, {"file": "a.py", "function": "f", "line": "3"}),
        (Frame, {"file": "a.py", "function": "f", "line": True}),
        (Raised, {"chain": 3}),
        (Observation, {"exit_status": "1"}),
        (Observation, []),
        (tuple[int, str], [1]),
        (float | None, "1.0"),
    ],
)
def test_what_does_not_fit_is_refused(kind: Any, value: Any) -> None:
    """A damaged file raises ValueError instead of giving a record with wrong values."""
    with pytest.raises(ValueError):
        from_json(kind, value)


def test_a_record_of_a_later_version_is_read() -> None:
    """A later version only adds keys, and a missing key has its default."""
    assert from_json(Frame, {"file": "a.py", "function": "f", "column": 4}) == Frame("a.py", "f", 0)
