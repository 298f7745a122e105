"""Run the probes that a search will probably need next, while it waits for an answer.

A search is a function of a predicate on programs. It is executed twice: once with the answers of
the oracle, and once ahead of that, on a thread, with the guess that a program without an answer no
longer fails. Programs that the execution ahead asks about are probed on other cores. If a guess was
wrong, the probes are cancelled and the execution ahead begins again with the answers so far.

Only the first execution decides, and it asks about each program in turn. So the result, and the
number of probes that count, do not depend on the number of cores or on the order in which probes
end.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from reprokit.core.judge import same_failure
from reprokit.host.system import host_log, interrupts

T = TypeVar("T")
R = TypeVar("R")
Answer = Callable[[str], str]
"""Returns one of ``core.judge.same_failure.ANSWERS`` for a program."""
MAX_AHEAD = 3
"""Probes per core that the execution ahead may start before their answers are needed."""
POLL_S = 0.01
GUESS = same_failure.PASSES


class Prober(Protocol[R]):
    """What a speculation needs of an oracle. ``examine`` and ``probe`` are called by threads."""

    def examine(self, text: str) -> tuple[str, str | None]:
        """Return the key of a program, and its answer if that is known."""

    def begin_probe(self) -> None:
        """Count a probe. Raise an exception if no program may be run any more."""

    def probe(self, text: str, cancelled: threading.Event | None = None) -> R:
        """Run a program."""

    def accept(self, text: str, key: str, result: R | None) -> str:
        """Return the answer that follows from a result; None for an answer that is known."""


class _Stopped(BaseException):
    """The execution ahead ends. No pass must catch it."""


class _Probe(Generic[R]):
    """One probe that was started before its answer was needed."""

    def __init__(self, prober: Prober[R], text: str, on_end: Callable[[], None]) -> None:
        self.cancelled, self.ended = threading.Event(), threading.Event()
        self.result: R | None = None
        """None as long as it runs, and if it was cancelled or failed."""
        self._prober, self._text, self._on_end = prober, text, on_end
        self.thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.result = self._prober.probe(self._text, self.cancelled)
        except BaseException as problem:  # the search then runs the program itself
            host_log.log_ignored(problem)
        finally:
            self.ended.set()
            self._on_end()


class Speculation(Generic[R]):
    """Executes searches with the probes of one oracle on several cores."""

    def __init__(self, prober: Prober[R], cores: int) -> None:
        self._prober, self._cores = prober, cores

    def run(self, search: Callable[[Answer], T], is_sequential: bool = False) -> T:
        """Return ``search(answer)``.

        The search is executed several times, so it must have no effect but its result. Exceptions
        of the oracle and KeyboardInterrupt end it.
        """
        if self._cores < 2 or is_sequential:
            return search(self._answer_alone)
        # an interrupt inside a lock would leave it locked, so one comes only while a probe runs
        waiting = interrupts.allowed if interrupts.are_allowed() else contextlib.nullcontext
        with interrupts.blocked():
            ahead = _Ahead(self._prober, search, self._cores, waiting)
            try:
                return search(ahead.answer)
            finally:
                ahead.close()

    def _answer_alone(self, text: str) -> str:
        key, known = self._prober.examine(text)
        if known is not None:
            return self._prober.accept(text, key, None)
        self._prober.begin_probe()
        return self._prober.accept(text, key, self._prober.probe(text))


class _Ahead(Generic[R]):
    """The execution ahead of one search, and its probes."""

    def __init__(
        self,
        prober: Prober[R],
        search: Callable[[Answer], object],
        cores: int,
        waiting: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        """``waiting`` is entered while the search waits for an answer."""
        self._prober, self._search, self._cores = prober, search, cores
        self._waiting = waiting
        self._changed = threading.Condition()
        self._probes: dict[str, _Probe[R]] = {}
        """The probes whose answers were not needed yet."""
        self._guessed: set[str] = set()
        self._unresolved: set[str] = set()
        """Programs that have no answer after a run, and are not run again ahead."""
        self._current = ""
        """The key of the program whose answer the search needs now."""
        self._waits_for: _Probe[R] | None = None
        """The probe of that program; None if the search runs it itself."""
        self._generation = 0
        self._thread: threading.Thread | None = None
        self._cancelled: list[_Probe[R]] = []

    def answer(self, text: str) -> str:
        """Return the answer for a program, of a probe that runs already if there is one."""
        key, known = self._prober.examine(text)
        if known is not None:
            return self._prober.accept(text, key, None)
        self._prober.begin_probe()
        with self._changed:
            probe, self._current = self._probes.pop(key, None), key
            self._waits_for = probe
            self._changed.notify_all()
        if self._thread is None:
            self._start()
        result = self._wait_for(probe) if probe is not None else None
        if result is None:
            with self._waiting():
                result = self._prober.probe(text)
        answer = self._prober.accept(text, key, result)
        if answer == same_failure.UNRESOLVED:
            self._unresolved.add(key)
        if answer == same_failure.SAME:
            self._stop()
        return answer

    def close(self) -> None:
        """End the execution ahead and its probes, and wait until they have ended."""
        if self._waits_for is not None:
            self._waits_for.cancelled.set()
            self._waits_for.thread.join()
        self._stop()
        for probe in self._cancelled:
            probe.thread.join()

    def _wait_for(self, probe: _Probe[R]) -> R | None:
        with self._waiting():
            while not probe.ended.wait(POLL_S):
                interrupts.raise_if_interrupted()
        probe.thread.join()
        return probe.result

    def _start(self) -> None:
        generation = self._generation
        thread = threading.Thread(
            target=self._run_ahead, args=(generation,), name="ahead", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as problem:  # a limit of threads; the search goes on alone
            host_log.log_ignored(problem)
        else:
            self._thread = thread

    def _stop(self) -> None:
        """End the execution ahead and its probes, after a wrong guess or at the end."""
        with self._changed:
            self._generation += 1
            self._guessed.clear()
            for probe in self._probes.values():
                probe.cancelled.set()
            self._cancelled = [p for p in self._cancelled if p.thread.is_alive()]
            self._cancelled += self._probes.values()
            self._probes.clear()
            self._changed.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def _run_ahead(self, generation: int) -> None:
        try:
            self._search(lambda text: self._guess(text, generation))
        except _Stopped as stopped:
            host_log.log_ignored(stopped)
        except Exception as problem:  # the search itself reports it
            host_log.log_ignored(problem)

    def _guess(self, text: str, generation: int) -> str:
        """Return the answer for a program, or the guess, and probe it if a core is free."""
        if generation != self._generation:
            raise _Stopped
        key, known = self._prober.examine(text)
        if known is not None:
            return known
        if key in self._unresolved:
            return same_failure.UNRESOLVED
        with self._changed:
            while key not in self._guessed and key != self._current:
                if generation != self._generation:
                    raise _Stopped
                if self._free_cores() > 0 and len(self._probes) < MAX_AHEAD * self._cores:
                    self._probes[key] = _Probe(self._prober, text, self._notify)
                    self._guessed.add(key)
                else:
                    self._changed.wait()
        return GUESS

    def _free_cores(self) -> int:
        probes = [*self._probes.values(), *self._cancelled]
        if self._waits_for is not None:
            probes.append(self._waits_for)
        running = sum(not probe.ended.is_set() for probe in probes)
        return self._cores - running - (self._waits_for is None)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def has_failure(answer: str) -> bool | None:
    """Return True for a program with the failure, False for one that does not fail at all."""
    return {same_failure.SAME: True, same_failure.PASSES: False}.get(answer)
