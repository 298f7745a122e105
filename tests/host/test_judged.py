"""When a program that is run again is still the same failure."""

from __future__ import annotations

from reprokit.host.probe.candidate import limits_for


def test_what_a_reduction_brought_to_the_edge_is_asked_for_less() -> None:
    """A machine may be three times as fast, and growth that is healthy stays so; other failures
    have no such edge.
    """
    rows = [
        {"size": n, "is_used": True, "cpu_s": s, "phases": {"backend": s}}
        for n, s in ((2, 1.0), (20, 20.0))
    ]
    growth = {"knob": "n", "sizes": rows, "worst": {"phase": "backend"}}
    strict = limits_for("superlinear-compile", 60.0, growth)
    eased = strict.eased()
    assert eased.least_s < strict.least_s / 3 and 10 < eased.least_ratio < strict.least_ratio
    plain = limits_for("exception", 60.0)
    assert plain.eased() == plain
