"""A query of the environment that fails is reported, and an interrupt ends all of them."""

from __future__ import annotations

import time

import pytest

from reprokit.host.environment import machine_facts
from reprokit.host.system import child_commands


def raise_error(problem: BaseException) -> None:
    raise problem


def test_a_failed_query_is_reported_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other facts are there; an error without words is reported by its type."""
    probes = {
        "os": lambda: "Linux",
        "cpu": lambda: raise_error(ValueError("half a line")),
        "rocm": lambda: raise_error(KeyError()),
    }
    monkeypatch.setattr(machine_facts, "MACHINE_PROBES", probes)
    found = machine_facts.collect_facts(None)
    assert found.facts == {"os": "Linux"}
    assert [(row.what, row.why) for row in found.missing] == [
        ("environment: cpu", "half a line"),
        ("environment: rocm", "KeyError()"),
        ("environment: Python and packages", machine_facts.NO_PYTHON),
    ]


def test_an_interrupt_ends_the_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """The children of the other queries are killed, so the interrupt does not wait for them."""
    failures: list[str] = []

    def interrupt() -> None:
        while not child_commands._running:
            time.sleep(0.005)
        raise KeyboardInterrupt

    def wait() -> None:
        try:
            child_commands.run_for_output(["sleep", "8"], 8.5)
        except child_commands.CommandFailed as problem:
            failures.append(str(problem))

    monkeypatch.setattr(machine_facts, "MACHINE_PROBES", {"os": interrupt, "cpu": wait})
    with pytest.raises(KeyboardInterrupt):
        machine_facts.collect_facts(None)
    assert failures == ["8: killed by SIGKILL, without an error message"]
