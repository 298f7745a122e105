"""The result of a search does not depend on the number of cores or on the speed of its probes."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.judge.same_failure import OTHER, PASSES, SAME, UNRESOLVED
from reprokit.core.reduce import subsets
from reprokit.core.reduce.edit_memory import EditMemory
from reprokit.core.reduce.pass_table import PASSES as REDUCTION_PASSES
from reprokit.host.minimize.answers.speculation import Answer, Speculation
from tests.support.environments import ROOT, clean_environ
from tests.support.examples import examples
from tests.support.processes import restore_signals


class FakeOracle:
    """Answers after a random time, and notes the programs whose answers the search accepted."""

    def __init__(self, answer: Callable[[str], str], seed: int = 0, most_s: float = 0.002) -> None:
        self.known: dict[str, str] = {}
        self.accepted: list[str] = []
        self.started: list[str] = []
        self.running = self.most_running = 0
        self._answer, self._lock, self._most_s = answer, threading.Lock(), most_s
        self._random = random.Random(seed)

    def examine(self, text: str) -> tuple[str, str | None]:
        return text, self.known.get(text)

    def begin_probe(self) -> None:
        pass

    def probe(self, text: str, cancelled: threading.Event | None = None) -> str:
        with self._lock:
            self.started.append(text)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            seconds = self._random.random() * self._most_s
        try:
            if cancelled is None:
                time.sleep(seconds)
            elif cancelled.wait(seconds):
                raise TimeoutError
            return self._answer(text)
        finally:
            with self._lock:
                self.running -= 1

    def accept(self, text: str, key: str, result: str | None) -> str:
        if result is None:
            return self.known[key]
        if result != UNRESOLVED:
            self.known[key] = result
        self.accepted.append(text)
        return result


def results(search: Callable[[Answer], Any], oracles: dict[int, FakeOracle]) -> list[Any]:
    """Return what a search gives with each number of cores, and the programs that it asked for."""
    before = threading.active_count()
    found = []
    for cores, oracle in oracles.items():
        found.append((Speculation(oracle, cores).run(search), oracle.accepted))
        # one more for a moment, if the search runs a program that was not expected
        assert oracle.most_running <= cores + (cores > 1) and oracle.running == 0
    assert threading.active_count() == before
    return found


@settings(max_examples=examples(60))
@given(st.sets(st.integers(0, 39), min_size=1, max_size=6), st.integers(0, 2**16))
def test_the_subset_is_the_same_for_any_number_of_cores(needed: set[int], seed: int) -> None:
    """Also for predicates that are not monotone, and with probes that end in any order."""

    def answer(text: str) -> str:
        some = {int(word) for word in text.split()}
        if (len(some) * 31 + seed) % 17 == 0 and len(some) < 40:
            return OTHER
        return SAME if needed <= some else PASSES

    def search(ask: Answer) -> list[int]:
        return subsets.smallest_subset(
            list(range(40)), lambda some: ask(" ".join(map(str, some))) == SAME
        )

    oracles = {cores: FakeOracle(answer, seed + cores) for cores in (1, 2, 16)}
    alone, two, many = results(search, oracles)
    assert alone == two == many


PROGRAM = """
import torch
def repro(x, y):
    a = torch.sin(x) + 1
    b = torch.cos(y, out=None) * 2
    c = torch.relu(a + b)
    d = torch.exp(c, out=None)
    return (d, a)
torch.compile(repro)(torch.ones(8, 8), torch.ones(8, 8))
"""


@pytest.mark.parametrize("needed", [("relu",), ("exp", "sin"), ("cos(y", "(8,")])
def test_each_pass_gives_the_same_program(needed: tuple[str, ...]) -> None:
    """The passes of a reduction, with the memory of rejected edits that they share."""

    def answer(text: str) -> str:
        return SAME if all(word in text for word in needed) else PASSES

    def search(ask: Answer) -> str:
        edits, text = EditMemory(), PROGRAM
        for _, step in REDUCTION_PASSES:
            own = edits.copy(text)

            def test(new: str, own: EditMemory = own) -> bool:
                return own.shows_failure(new, lambda: ask(new) == SAME)

            text = step(text, test)
            edits.update(own)
        return text

    alone, two, many = results(search, {c: FakeOracle(answer, c) for c in (1, 2, 16)})
    assert alone == two == many and all(word in alone[0] for word in needed)


def test_probes_run_at_once() -> None:
    """Programs that no longer fail are probed side by side, each of them once."""
    oracle = FakeOracle(lambda text: PASSES, most_s=0.05)

    def search(ask: Answer) -> list[str]:
        return [ask(str(number)) for number in range(30)]

    assert Speculation(oracle, 4).run(search) == [PASSES] * 30
    assert oracle.most_running >= 4 and sorted(oracle.started) == sorted(oracle.accepted)


def test_a_wrong_guess_ends_the_probes_after_it() -> None:
    """The probes that it made useless are cancelled; the answer is that of the search alone."""
    oracle = FakeOracle(lambda text: SAME if text == "2" else PASSES, most_s=0.01)

    def search(ask: Answer) -> str:
        taken = next(str(n) for n in range(100) if ask(str(n)) == SAME)
        return f"{taken} {ask('the end')}"

    assert Speculation(oracle, 3).run(search) == f"2 {PASSES}"
    assert oracle.accepted == ["0", "1", "2", "the end"] and len(oracle.started) < 20


@pytest.mark.parametrize("problem", [KeyboardInterrupt, RuntimeError])
def test_an_exception_ends_the_search_and_its_probes(problem: type[BaseException]) -> None:
    """No thread goes on."""
    before = threading.active_count()

    class Ended(FakeOracle):
        def begin_probe(self) -> None:
            if len(self.accepted) == 3:
                raise problem

    oracle = Ended(lambda text: PASSES, most_s=0.02)
    with pytest.raises(problem):
        Speculation(oracle, 4).run(lambda ask: [ask(str(n)) for n in range(50)])
    assert threading.active_count() == before and len(oracle.accepted) == 3


def test_a_program_without_an_answer_is_probed_once_ahead() -> None:
    """The execution ahead begins again after each success, and does not run it again."""
    oracle = FakeOracle(
        lambda text: UNRESOLVED if text == "u" else SAME if text.startswith("s") else PASSES
    )

    def search(ask: Answer) -> list[str]:
        return [ask(text) for n in range(6) for text in ("u" * (n == 0) or f"s{n}", f"p{n}")]

    found = Speculation(oracle, 4).run(search)
    assert found == [UNRESOLVED, PASSES, *[SAME, PASSES] * 5]
    assert oracle.started.count("u") == 1


INTERRUPTED = """
import os, signal, sys, threading, time
from reprokit.host.minimize.answers.speculation import Speculation
from reprokit.host.system import interrupts
from tests.host.test_speculation import FakeOracle

oracle = FakeOracle(lambda text: "same" if text.endswith("7") else "passes", most_s=0.001)
speculation = Speculation(oracle, 4)
ended = 0

def search(ask):
    end, n = time.monotonic() + 20, 0
    while time.monotonic() < end:
        ask(f"{number} {n}")
        n += 1

with interrupts.deferred():
    for number in range(60):
        timer = threading.Timer(0.001 * (number % 20), os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            with interrupts.allowed():
                speculation.run(search)
        except KeyboardInterrupt:
            ended += 1
        timer.join()
        names = [thread.name for thread in threading.enumerate() if thread.name in ("probe", "ahead")]
        assert not names, names
print("interrupted", ended)
"""


def test_an_interrupt_at_any_moment_ends_the_search() -> None:
    """No lock stays locked, and no thread goes on. A search that hangs would end by its time."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED],
        cwd=ROOT,
        env=clean_environ(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=restore_signals,
        check=False,
    )
    assert done.stdout.split() == ["interrupted", "60"], done.stdout + done.stderr


def test_a_probe_that_fails_on_its_thread_is_repeated() -> None:
    """The search runs the program itself, and sees the exception if there is one again."""

    class Unlucky(FakeOracle):
        def probe(self, text: str, cancelled: threading.Event | None = None) -> str:
            if cancelled is not None:
                raise OSError("no process")
            return super().probe(text)

    oracle = Unlucky(lambda text: PASSES)
    assert Speculation(oracle, 4).run(lambda ask: [ask(str(n)) for n in range(9)]) == [PASSES] * 9
    assert len(oracle.accepted) == 9
