"""The rules of a watch: when a process tree is examined, and which ports answer."""

from __future__ import annotations

import dataclasses
import socket
import time

import pytest

from reprokit.host.attach.open_requests import ClosedConnections, Connection
from reprokit.host.service.answering_ports import AnsweringPorts
from reprokit.host.service.look import Look, Position
from reprokit.host.service.stillness import UNSURE_FACTOR, Stillness

COMPILING = Position(7, 0, "lowering", ("torch/_inductor/graph.py run_node",))
RUNNING = Position(7, 0, "kernel-run", ("model.py:3 in forward",))
AT_REST = Look(None, True)
UNREADABLE = Look(None, False)


def looks(*rows: tuple[float, Look]) -> Stillness:
    still = Stillness(stall_s=120.0, gap_s=20.0)
    for now, look in rows:
        still.add_look(look, now)
    return still


@pytest.mark.parametrize(
    ("rows", "is_suspect"),
    [
        ([(0, COMPILING), (80, COMPILING)], False),
        ([(0, COMPILING), (95, COMPILING)], True),
        ([(0, COMPILING), (50, RUNNING), (95, COMPILING)], False),
        ([(0, RUNNING), (95, RUNNING)], True),
    ],
)
def test_only_what_does_not_move_is_examined(
    rows: list[tuple[float, Position]], is_suspect: bool
) -> None:
    """Examined so early that a report comes at most ``--stall`` after the beginning."""
    still = looks(*((float(now), Look(position, True)) for now, position in rows))
    assert still.is_suspect is is_suspect


def test_idle_in_between_is_progress_and_no_stack_is_not() -> None:
    assert (
        not looks((0, Look(COMPILING, True)), (60, AT_REST), (95, Look(COMPILING, True))).left_s
        <= 0
    )
    unread = looks((0, Look(COMPILING, True)), (60, UNREADABLE), (95, Look(COMPILING, True)))
    assert unread.is_suspect


def test_compiled_code_that_is_called_again_and_again_is_examined_later() -> None:
    """A busy server is in compiled code at each look, but its thread waits in between."""
    rows = [(float(now), Look(RUNNING, True, switches=now * 50)) for now in range(0, 361, 20)]
    busy = looks(*rows[:8])
    assert busy.still_s == 140 and not busy.is_suspect
    assert busy.left_s == pytest.approx(95 * UNSURE_FACTOR - 140)
    stuck = looks(*((now, dataclasses.replace(look, switches=3)) for now, look in rows[:8]))
    assert stuck.is_suspect


def test_a_suspect_that_was_cleared_is_examined_less_often() -> None:
    still = looks((0, Look(COMPILING, True)), (100, Look(COMPILING, True)))
    assert still.is_suspect
    still.clear()
    assert not still.is_suspect and still.left_s == pytest.approx(2 * 95 - 100)
    still.add_look(Look(COMPILING, True), 200)
    assert still.is_suspect
    still.is_reported = True
    assert not still.is_suspect


def connection(inode: int, received: float, sent: float, now: float, **more: object) -> Connection:
    base = Connection(inode, 8000, False, 0, now - sent, now - received, bool(sent), bool(received))
    return dataclasses.replace(base, **more)  # type: ignore[arg-type]


LISTENING = Connection(9, 8000, True, 0)


def learned(*calls: tuple[float, list[tuple[int, float, float]]]) -> frozenset[int]:
    """Learn from the times at which connections (inode, received, sent) had data; 0 is never. The
    same is seen three times, of different connections.
    """
    ports = AnsweringPorts()
    for number in range(3):
        for now, rows in calls:
            later = 1_000.0 * number
            shifted = [(inode + 10 * number, r + later, s and s + later) for inode, r, s in rows]
            now_later = now + later
            rows_then = [connection(*row, now_later) for row in shifted]
            ports.learn([LISTENING, *rows_then], [], now_later)
    return ports.ports


def test_a_port_answers_if_an_answer_was_seen() -> None:
    assert learned((10, [(1, 9.0, 9.5)])) == {8000}
    assert learned((10, [(1, 9.5, 0.0)]), (11, [(1, 9.5, 10.2)])) == {8000}


def test_a_port_answers_if_connections_were_closed_after_an_answer() -> None:
    for sent, is_learned in ((9.5, True), (0.0, False), (8.0, False)):
        ports = AnsweringPorts()
        for number in range(3):
            assert not ports.ports
            closed = connection(0, 9.0, sent, 10.0)
            of_client = dataclasses.replace(closed, port=50_000 + number)
            ports.learn([LISTENING], [closed, of_client], 10.0 + number)
        assert ports.ports == ({8000} if is_learned else frozenset())


def test_the_kernel_reports_connections_that_were_closed() -> None:
    closed = ClosedConnections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = server.accept()
        client.sendall(b"request")
        accepted.recv(100)
        accepted.sendall(b"answer")
        client.recv(100)
        client.close()
        accepted.close()
        found: list[Connection] = []
        for _ in range(100):
            found += [one for one in closed.read() if one.port == port]
            if found:
                break
            time.sleep(0.05)
    assert len(found) == 1 and found[0].has_received and found[0].has_sent
    assert found[0].sent_s <= found[0].received_s and not found[0].is_listening
    closed.close()
    assert closed.read() == []


def test_a_port_that_only_reads_does_not_answer() -> None:
    assert learned((10, [(1, 9.5, 0.0)]), (11, [(1, 9.5, 0.0)])) == frozenset()
    rows = [(now, [(1, now - 0.1, 0.0)]) for now in range(10, 20)]
    assert learned(*rows) == frozenset()
    assert learned(*rows, (40, [])) == frozenset()


def test_a_named_port_answers() -> None:
    assert AnsweringPorts([9000]).ports == {9000}


@pytest.mark.parametrize(
    ("received", "sent", "is_answered"),
    [(0.0, 0.0, True), (9.0, 0.0, False), (9.0, 9.5, True), (9.0, 8.9, True), (9.0, 5.0, False)],
)
def test_an_acknowledgement_is_no_request(received: float, sent: float, is_answered: bool) -> None:
    """Data that arrive directly after an answer are an acknowledgement of HTTP/2."""
    assert connection(1, received, sent, 10.0).is_answered is is_answered
