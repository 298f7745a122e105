"""Learn on which TCP ports a service answers every request."""

from __future__ import annotations

import collections
from collections.abc import Collection
from dataclasses import dataclass

from reprokit.host.attach.open_requests import Connection

TOLERANCE_S = 0.2
"""The kernel reports ages; the time between its answer and ours is not known."""
MIN_ANSWERS = 3
"""One answer may be the start of a stream."""


@dataclass(frozen=True)
class _Seen:
    is_answered: bool
    received: float
    sent: float


class AnsweringPorts:
    """The ports that the user named, and those whose connections were seen to get answers.

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

    def learn(
        self, connections: Collection[Connection], closed: Collection[Connection], now: float
    ) -> None:
        """Compare the open connections at ``now`` (seconds) with those of the last call, and read
        the last state of those that were ``closed`` since then.
        """
        last, self._last = self._last, {}
        listening = {one.port for one in connections if one.is_listening}
        for one in closed:
            if one.port in listening:
                self._answers[one.port] += _ends_with_answer(one)
        for one in connections:
            if one.is_listening or not one.inode or one.port not in listening:
                continue
            seen = _Seen(one.is_answered, now - one.received_s, now - one.sent_s)
            before = last.get(one.inode)
            self._last[one.inode] = seen
            if before is None or seen.sent > before.sent + TOLERANCE_S:
                self._answers[one.port] += _ends_with_answer(one)
            elif seen.received > before.received + TOLERANCE_S:
                is_read = not one.unread_bytes
                self._one_way[one.port] += is_read and not (seen.is_answered or before.is_answered)


def _ends_with_answer(one: Connection) -> bool:
    """Return whether the program sent data after the last data that it received."""
    return one.has_received and one.has_sent and one.sent_s <= one.received_s
