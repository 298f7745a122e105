"""Which remedies are worth a try: what the bisection found is called by what it is."""

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
def test_what_it_takes_is_left_out_by_its_own_name(among: str, offered: list[str]) -> None:
    """A lowering is no pass, and only an operator has a place at which a graph can break."""
    assert names(among) == offered


def test_no_graph_break_where_a_whole_graph_is_asked_for() -> None:
    """With fullgraph=True a graph break is a failure of its own."""
    assert names("lowerings", fullgraph=True) == ["without the lowering of relu"]
