"""Fixtures of the tests of the agent."""

from __future__ import annotations

import pytest

from reprokit.agent.record import journal
from reprokit.core.shared.contract.event_base import Event


@pytest.fixture
def journaled(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """The events that the agent journals in this process."""
    found: list[Event] = []
    monkeypatch.setattr(journal, "write_event", found.append)
    return found
