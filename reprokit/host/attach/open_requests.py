"""Find requests that wait for an answer, from what the kernel reports about TCP sockets.

The data come from ``sock_diag(7)``, as those of ``ss -ti`` do: no packet is read, and no right is
needed. Only the network namespace of reprokit is seen.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from reprokit.core.records.process_state import WaitingRequest
from reprokit.host.system import host_log, process_tree

SOCK_DIAG, DIAG_BY_FAMILY, DUMP_REQUEST = 4, 20, 0x301
"""NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, and NLM_F_REQUEST | NLM_F_DUMP (linux/netlink.h)."""
CLOSED_GROUPS = 1 << 0 | 1 << 2
"""SKNLGRP_INET_TCP_DESTROY and SKNLGRP_INET6_TCP_DESTROY (linux/sock_diag.h)."""
MAX_CLOSED = 1000
"""Closed connections that are read at once."""
DONE, ERROR = 3, 2
INFO = 2
"""INET_DIAG_INFO, the attribute with the ``struct tcp_info`` of linux/tcp.h."""
ESTABLISHED, LISTEN = 1, 10
MIN_GAP_S = 0.3
"""A client of HTTP/2 acknowledges an answer within a round trip, which is no new request."""
_TIMES, _SEGMENTS = struct.Struct("=IIII"), struct.Struct("=II")
_TIMES_AT, _SEGMENTS_AT = 44, 152


@dataclass(frozen=True)
class Connection:
    """One TCP socket."""

    inode: int
    """0 for a connection that the program has not accepted."""
    port: int
    """Its port on this machine."""
    is_listening: bool
    unread_bytes: int
    sent_s: float = 0.0
    """Seconds since the program last sent data."""
    received_s: float = 0.0
    """Seconds since data last arrived."""
    has_sent: bool = False
    has_received: bool = False
    peer_port: int = 0

    @property
    def is_answered(self) -> bool:
        """Whether nothing arrived after the last answer, or only an acknowledgement."""
        if not self.has_received:
            return True
        return self.has_sent and self.sent_s - self.received_s < MIN_GAP_S


def find_waiting_requests(
    pids: Iterable[int],
    answering_ports: Collection[int] = (),
    connections: Sequence[Connection] | None = None,
    *,
    is_http: bool = False,
) -> tuple[WaitingRequest, ...]:
    """Return the connections to ports of these processes whose data wait, the oldest first.

    Data that nobody has read wait on every port. Data that were read wait for an answer only on
    ``answering_ports``, because not every protocol answers. With ``is_http``, the first data of a
    connection to any port wait for an answer.
    """
    owners = _owners_of_sockets(pids)
    if connections is None:
        connections = list_connections()
    ports = {c.port for c in connections if c.is_listening and c.inode in owners}
    found = []
    for one in connections:
        if one.is_listening or one.port not in ports or (one.inode and one.inode not in owners):
            continue
        is_first = is_http and one.has_received and not one.has_sent
        is_unanswered = is_first or (one.port in answering_ports and not one.is_answered)
        if one.unread_bytes or is_unanswered:
            state = "unread" if one.unread_bytes else "unanswered"
            pid = owners.get(one.inode, 0)
            found.append(WaitingRequest(one.port, pid, round(one.received_s, 1), state))
    return tuple(sorted(found, key=lambda request: -request.seconds))


def find_own_ports(pids: Iterable[int], connections: Sequence[Connection]) -> tuple[int, ...]:
    """Return the ports of these processes to which they are connected themselves."""
    owners = _owners_of_sockets(pids)
    own = [one for one in connections if one.inode in owners]
    ports = {one.port for one in own if one.is_listening}
    return tuple(sorted({one.peer_port for one in own if not one.is_listening} & ports))


def list_connections() -> list[Connection]:
    """Return the established and listening TCP sockets; empty if the kernel does not tell."""
    found: list[Connection] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        with (
            host_log.suppress(OSError, struct.error),
            socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as link,
        ):
            link.settimeout(2.0)
            states = 1 << ESTABLISHED | 1 << LISTEN
            body = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (INFO - 1), states)
            head = struct.pack("=IHHII", 16 + len(body), DIAG_BY_FAMILY, DUMP_REQUEST, 1, 0)
            link.send(head + body)
            found += _read_answer(link)
    return found


class ClosedConnections:
    """Receives from the kernel the TCP connections that are closed, in their last state.

    The kernel drops events that are not read for a while. Without its support there are none.
    """

    def __init__(self) -> None:
        self._link: socket.socket | None = None
        with host_log.suppress(OSError):
            link = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, SOCK_DIAG
            )
            link.bind((0, CLOSED_GROUPS))
            self._link = link

    def read(self) -> list[Connection]:
        """Return the connections that were closed since the last call; their inode is 0."""
        found: list[Connection] = []
        with host_log.suppress(OSError, struct.error):
            while self._link is not None and len(found) < MAX_CLOSED:
                if not select.select([self._link], [], [], 0)[0]:
                    break
                found += [_connection(body) for _, body in _messages(self._link.recv(1 << 16))]
        return found

    def close(self) -> None:
        """Stop receiving."""
        if self._link is not None:
            self._link.close()
            self._link = None


def _read_answer(link: socket.socket) -> Iterator[Connection]:
    while True:
        for kind, body in _messages(link.recv(1 << 16)):
            if kind in (DONE, ERROR):
                return
            yield _connection(body)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the body of each message."""
    while len(data) >= 16:
        size, kind = struct.unpack_from("=IH", data)
        if size < 16:
            return
        yield kind, data[16:size]
        data = data[(size + 3) & ~3 :]


def _connection(data: bytes) -> Connection:
    """Read a ``struct inet_diag_msg`` (linux/inet_diag.h) and its attribute INET_DIAG_INFO."""
    state = data[1]
    port, peer_port = struct.unpack_from("!HH", data, 4)
    unread, _, _, inode = struct.unpack_from("=IIII", data, 56)
    info = next((value for kind, value in _attributes(data[72:]) if kind == INFO), b"")
    sent, _, received, _ = _field(_TIMES, info, _TIMES_AT)
    segments_in, segments_out = _field(_SEGMENTS, info, _SEGMENTS_AT)
    return Connection(
        inode,
        port,
        state == LISTEN,
        unread,
        sent / 1000,
        received / 1000,
        bool(segments_out),
        bool(segments_in),
        peer_port,
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind and the value of each attribute of a message."""
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        yield kind, data[4:size]
        data = data[max(4, (size + 3) & ~3) :]


def _field(layout: struct.Struct, info: bytes, offset: int) -> tuple[int, ...]:
    """Return the numbers at ``offset``; zeros if the kernel is too old to report them."""
    if len(info) < offset + layout.size:
        return (0,) * (layout.size // 4)
    return layout.unpack_from(info, offset)


def _owners_of_sockets(pids: Iterable[int]) -> dict[int, int]:
    """Return the pid of a process that has each socket open, by its inode."""
    owners: dict[int, int] = {}
    for pid in pids:
        for link in process_tree.descriptor_links(pid).values():
            if link.startswith("socket:["):
                owners.setdefault(int(link[8:-1]), pid)
    return owners
