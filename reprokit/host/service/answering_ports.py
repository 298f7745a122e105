"""Learn on which TCP ports a service answers every request."""

from __future__ import annotations

import collections
from collections.abc import Collection
from dataclasses import dataclass

from reprokit.host.attach.open_requests import Connection

TOLERANCE_S = 0.2
"""The kernel reports ages; the time between its answer and ours is not known."""
MIN_ANSWERS = 3
"""A connection that stays open after one answer may be a stream; one that is closed is enough."""
SHORT_S = 10.0
"""A connection that is closed so soon after its request was answered: clients wait for answers."""


@dataclass(frozen=True)
class _Seen:
    port: int
    is_answered: bool
    received: float
    sent: float


class AnsweringPorts:
    """The ports that the user named, and those whose connections were seen to get answers, or to
    be closed soon after a request.

    A port is not among them if data have arrived on it one after the other without an answer, as on
    a port for log lines.
    """

    def __init__(self, named: Collection[int] = ()) -> None:
        self._named = frozenset(named)
        self._answers: collections.Counter[int] = collections.Counter()
        self._one_way: collections.Counter[int] = collections.Counter()
        self._last: dict[int, _Seen] = {}

    @property
    def ports(self) -> frozenset[int]:
        """The ports that answer."""
        learned = {p for p, n in self._answers.items() if n >= MIN_ANSWERS and not self._one_way[p]}
        return self._named | learned

    def learn(self, connections: Collection[Connection], now: float) -> None:
        """Compare the connections at ``now`` (seconds) with those of the last call."""
        last, self._last = self._last, {}
        open_ones = {one.inode for one in connections}
        for inode, seen in last.items():
            if inode not in open_ones and now - seen.received < SHORT_S:
                self._answers[seen.port] += MIN_ANSWERS
        for one in connections:
            if one.is_listening or not one.inode:
                continue
            seen = _Seen(one.port, one.is_answered, now - one.received_s, now - one.sent_s)
            before = last.get(one.inode)
            self._last[one.inode] = seen
            has_sent = before is None or seen.sent > before.sent + TOLERANCE_S
            if has_sent:
                self._answers[one.port] += (
                    one.has_sent and one.has_received and seen.sent >= seen.received
                )
            elif before is not None and seen.received > before.received + TOLERANCE_S:
                is_read = not one.unread_bytes
                self._one_way[one.port] += is_read and not (seen.is_answered or before.is_answered)
