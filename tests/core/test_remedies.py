"""Remedies are selected by the kind of component that the bisection found."""

import pytest

from reprokit.core.experiments import remedies
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation

WRONG = Verdict("wrong-result", "inductor", "values", "it differs")


def names(among: str, **compile: object) -> list[str]:
    seen = Observation(first_rung="inductor", departs="relu", departs_in=among)
    return [r.name for r in remedies.remedies_for(WRONG, seen, compile) if "relu" in r.name]


@pytest.mark.parametrize(
    ("among", "offered"),
    [
        ("lowerings", ["without the lowering of relu", "graph break at relu"]),
        ("post_grad_passes", ["without the pass relu"]),
        ("decomposition", []),
        ("", []),
    ],
)
def test_the_component_that_causes_the_failure_is_left_out_by_name(
    among: str, offered: list[str]
) -> None:
    """A lowering is not a pass, and only at an operator can a graph break."""
    assert names(among) == offered


def test_no_graph_break_with_fullgraph() -> None:
    """With fullgraph=True a graph break is an error."""
    assert names("lowerings", fullgraph=True) == ["without the lowering of relu"]
