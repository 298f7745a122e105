"""A program that is run again may have a lower limit for the same failure."""

from __future__ import annotations

from reprokit.host.probe.candidate import probe_limits_for


def test_a_reduced_program_has_lower_limits() -> None:
    """A machine may be three times as fast, and healthy growth is still healthy; other failures
    have no such limit.
    """
    rows = [
        {"size": n, "is_used": True, "cpu_s": s, "phases": {"backend": s}}
        for n, s in ((2, 1.0), (20, 20.0))
    ]
    growth = {"knob": "n", "sizes": rows, "worst": {"phase": "backend"}}
    strict = probe_limits_for("superlinear-compile", 60.0, growth)
    eased = strict.relaxed()
    assert (
        eased.min_cost_s < strict.min_cost_s / 3
        and 10 < eased.min_cost_ratio < strict.min_cost_ratio
    )
    plain = probe_limits_for("exception", 60.0)
    assert plain.relaxed() == plain
