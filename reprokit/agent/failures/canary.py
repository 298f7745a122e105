"""Compare one call in many of a compiled module or function with eager, while the program runs.

The eager call and one in float64 run in forked processes, which have all that the program has
before the call and can change none of it. The program continues with its compiled call, and gives
the processes a copy of the results. One of them compares, and writes the call if it differs.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from ..results import compare_results, float64, result_recorder
from ..torch_hooks import trace_file
from . import call_programs, failure_records

DIFFERENCE = "reprokit_difference"
"""The record of what differs."""
LIMIT_S = 300
"""Seconds after which a forked process is ended. Those in which it waits for the program, whose
first call compiles, do not count.
"""
SENT, FOUND = b"1", b"f"
_pytree = torch.utils._pytree
_is_forked = False


class _CannotCompare(Exception):
    """Why a call cannot be compared."""


def add_canary(compiled: Any, every: int, folder: str, has_values: bool) -> Any:
    """Return ``compiled``, or a function in its place, with the comparison.

    Raises ValueError if it is not compiled, or ``every`` is no positive integer.
    """
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"every is {every!r}, and must be an integer above 0")
    if isinstance(compiled, torch.nn.Module):
        original = getattr(compiled, "_orig_mod", None)
        if original is not None:
            check = Canary(original, original, compiled.forward, every, folder, has_values)
            check.backend = _backend_of(compiled)
            compiled.__dict__["forward"] = check.call
            return compiled
        if (call := getattr(compiled, "_compiled_call_impl", None)) is not None:
            eager = compiled._call_impl
            check = Canary(compiled, eager, call, every, folder, has_values)
            compiled._compiled_call_impl = check.call
            return compiled
    function = getattr(compiled, "_torchdynamo_orig_callable", None)
    if function is None:
        raise ValueError(f"{compiled!r:.200} is not compiled; give it what torch.compile returns")
    check = Canary(function, function, compiled, every, folder, has_values)

    @functools.wraps(compiled)
    def checked(*args: Any, **kwargs: Any) -> Any:
        return check.call(*args, **kwargs)

    return checked


class Canary:
    """The comparison of the calls of one compiled module or function."""

    def __init__(
        self,
        original: Any,
        eager: Callable[..., Any],
        compiled: Callable[..., Any],
        every: int,
        folder: str,
        has_values: bool,
    ) -> None:
        """``original`` is what was compiled; ``eager`` calls it, and ``compiled`` is called for the
        program.
        """
        self._original, self._eager, self._compiled = original, eager, compiled
        self._every, self._folder, self._has_values = every, os.path.abspath(folder), has_values
        self._count = 0
        self._is_off = self._has_said = False
        self._lock = threading.Lock()
        self._answer = -1
        """Where the process that compares writes what it finds; -1 if none runs."""
        self.backend: Any = None

    def call(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function, and compare the call if it is its turn."""
        if _is_forked or self._is_off or torch.compiler.is_compiling():
            return self._compiled(*args, **kwargs)
        self._count += 1
        if (self._count - 1) % self._every:
            return self._compiled(*args, **kwargs)
        comparison = None
        if self._lock.acquire(blocking=False):  # two threads may call the same module
            try:
                comparison = self._begin(args, kwargs)
            finally:
                self._lock.release()
        if comparison is None:
            return self._compiled(*args, **kwargs)
        with comparison:
            out = self._compiled(*args, **kwargs)
            comparison.send(out, args, kwargs, self._original)
        return out

    def _begin(self, args: Any, kwargs: Any) -> ForkedCalls | None:
        """Start the processes of a comparison; None if this call cannot be compared, or the last
        comparison has not ended.
        """
        if not self._has_ended() or self._is_off:
            return None
        try:
            _refuse(self._original)
            comparison = ForkedCalls()
            try:
                comparison.start(lambda: self._run_forked(comparison, args, kwargs))
            except BaseException:
                comparison.close()
                os.close(comparison.answer)
                raise
            self._answer = comparison.answer
            return comparison
        except Exception as problem:
            self._say(problem)
            return None

    def _has_ended(self) -> bool:
        """Return whether the last comparison has ended, and take its answer."""
        if self._answer < 0:
            return True
        try:
            words = os.read(self._answer, 8)
        except BlockingIOError:
            return False
        os.close(self._answer)
        self._answer = -1
        self._has_said |= bool(words)
        self._is_off = words == FOUND
        return True

    def _say(self, problem: Exception) -> None:
        """Say once why a call cannot be compared."""
        if self._has_said:
            return
        self._has_said = True
        why = str(problem) if isinstance(problem, _CannotCompare) else f"{problem!r:.200}"
        with contextlib.suppress(Exception):
            text = f"reprokit: the canary cannot compare call {self._count} of {self._name}: {why}"
            _write_stderr(text + "\n")

    @property
    def _name(self) -> str:
        return str(getattr(self._original, "__name__", type(self._original).__name__))

    def _run_forked(self, comparison: ForkedCalls, args: Any, kwargs: Any) -> None:
        """Run in eager, in a forked process, and compare with what the program and the process of
        the float64 call send.
        """
        args, kwargs = _without_shared_memory((args, kwargs))
        if os.fork() == 0:
            _as_forked(lambda: self._run_in_float64(comparison, args, kwargs))
        comparison.close_wide()
        write = self._start_writer(args, kwargs)
        before, raised = torch.get_rng_state(), None
        try:
            out = self._eager(*args, **kwargs)
            eager = _rows_of(out, args, kwargs, self._original)
        except Exception as problem:
            raised = problem
        is_random = not torch.equal(before, torch.get_rng_state())
        compiled, is_drawn = comparison.receive()
        if compiled is None:
            return  # the compiled call raised too, or the program has ended
        try:
            if raised is not None:
                raise _CannotCompare(f"its eager call raised {raised!r:.200}")
            if is_random or is_drawn:
                raise _CannotCompare("it draws random numbers, which differ in compiled code")
            found = _differences(eager, compiled, comparison.receive_wide())
            if found:
                os.write(write, json.dumps({**found[0], "call": self._count}).encode())
                comparison.tell(FOUND)
        except Exception as problem:
            if not self._has_said:
                comparison.tell(SENT)
            self._say(problem)

    def _run_in_float64(self, comparison: ForkedCalls, args: Any, kwargs: Any) -> None:
        out, args, kwargs = float64.call_in_float64(self._eager, args, kwargs)
        comparison.send_wide(_rows_of(out, args, kwargs, self._original))

    def _start_writer(self, args: Any, kwargs: Any) -> int:
        """Start the process that writes the call, which the eager call has not changed, if it gets
        what differs. Return where that is written to.
        """
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(write)
            _as_forked(lambda: self._write(_wait_for(read, 1 << 16), args, kwargs))
        os.close(read)
        return write

    def _write(self, found: bytes, args: Any, kwargs: Any) -> None:
        if not found:  # nothing differs
            return
        facts = {**json.loads(found), "function": self._name}
        call = call_programs.CallToSave(self._original, args, kwargs)
        text = failure_records.text_or_reason(
            lambda: call_programs.program_of_call(call, (), self.backend, self._has_values)
        )
        path = failure_records.new_file(self._folder)
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(trace_file.version_line())
            file.write(trace_file.record_line(DIFFERENCE, json.dumps(facts)))
            file.write(trace_file.record_line(failure_records.CALL, text))
        name, number = facts["name"], facts["call"]
        what = f"{name} of {self._name} differs from eager in call {number}; the call"
        failure_records.announce(path, what, _write_stderr)


class ForkedCalls:
    """What the processes of one comparison send to each other, in memory.

    The program has it open until its call has ended.
    """

    def __init__(self) -> None:
        self._results, self._wide = (os.memfd_create(name) for name in ("results", "wide"))
        self._results_sent, self._wide_sent = os.pipe(), os.pipe()
        self.answer, self._tell = os.pipe()
        os.set_blocking(self.answer, False)
        self._others: tuple[int, ...]
        self._others = (self._results_sent[0], *self._wide_sent, self._wide, self._tell)
        self._random = torch.get_rng_state()

    def __enter__(self) -> ForkedCalls:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close what the program has open, but for ``answer``."""
        for one in (self._results, self._results_sent[1], *self._others):
            os.close(one)
        self._others = ()

    def start(self, run: Callable[[], None]) -> None:
        """Run a function in a process that is no child of this one."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, which the forked process does not use
            child = os.fork()
        if child == 0:
            try:
                if os.fork() == 0:
                    os.close(self._results_sent[1])
                    _as_forked(run)
            finally:  # this process must never go on as the program
                os._exit(0)
        with contextlib.suppress(ChildProcessError):  # the program ignores SIGCHLD
            os.waitpid(child, 0)
        for one in self._others:
            os.close(one)
        self._others = ()

    def send(self, out: Any, args: Any, kwargs: Any, original: Any) -> None:
        """Send the results of the compiled call."""
        with contextlib.suppress(Exception):
            is_drawn = not torch.equal(self._random, torch.get_rng_state())
            _save(self._results, (_rows_of(out, args, kwargs, original), is_drawn))
            os.write(self._results_sent[1], SENT)

    def receive(self) -> tuple[compare_results.ResultRows | None, bool]:
        """Return the results of the compiled call, and whether it drew random numbers; None if it
        raised.
        """
        if not _wait_for(self._results_sent[0], 1):
            return None, False
        rows, is_drawn = _load(self._results)
        return rows, is_drawn

    def send_wide(self, rows: compare_results.ResultRows) -> None:
        """Send the results of the call in float64."""
        _save(self._wide, rows)
        os.write(self._wide_sent[1], SENT)

    def close_wide(self) -> None:
        """Close the end of that process in this one."""
        os.close(self._wide_sent[1])

    def receive_wide(self) -> compare_results.ResultRows | None:
        """Return the results in float64; None if that call raised."""
        has_rows = os.read(self._wide_sent[0], 1)
        rows: compare_results.ResultRows | None = _load(self._wide) if has_rows else None
        return rows

    def tell(self, answer: bytes) -> None:
        """Tell the program what was found."""
        with contextlib.suppress(OSError):  # the program has ended
            os.write(self._tell, answer)


def _refuse(original: Any) -> None:
    """Raise _CannotCompare if a forked process cannot run the call, or would change what is not its
    own.
    """
    if sys.platform != "linux":
        raise _CannotCompare("only Linux has what it needs")
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        raise _CannotCompare("the program uses a GPU, which a forked process cannot")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise _CannotCompare("the process is one of several ranks")
    if isinstance(original, torch.nn.Module):
        state = (*original.parameters(), *original.buffers())
        if any(one.is_shared() for one in state if type(one) is torch.Tensor):
            raise _CannotCompare("the module has tensors in shared memory")


def _as_forked(run: Callable[[], None]) -> NoReturn:
    """Run a function, and end the process. What it prints is lost."""
    global _is_forked
    _is_forked = True
    with contextlib.suppress(BaseException):
        for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(LIMIT_S)
        global _stderr
        if _stderr < 0:
            _stderr = os.dup(2)
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
        torch.set_num_threads(1)  # the threads of the program are not in a forked process
        torch.compiler.set_stance("force_eager")
        run()
    os._exit(0)


_stderr = -1
"""That of the program, in a forked process."""


def _write_stderr(text: str) -> None:
    if _stderr >= 0:
        os.write(_stderr, text.encode("utf-8", "replace"))
    else:
        sys.stderr.write(text)


def _wait_for(pipe: int, most: int) -> bytes:
    """Return what comes through a pipe; empty if the process at its other end has ended."""
    signal.alarm(0)
    data = os.read(pipe, most)
    signal.alarm(LIMIT_S)
    return data


def _without_shared_memory(tree: Any) -> Any:
    """Return arguments with copies of tensors that other processes see, such as batches of a
    DataLoader.
    """
    return _pytree.tree_map(
        lambda leaf: (
            leaf.detach().clone().requires_grad_(leaf.requires_grad)
            if type(leaf) is torch.Tensor and leaf.is_shared()
            else leaf
        ),
        tree,
    )


def _rows_of(out: Any, args: Any, kwargs: Any, original: Any) -> compare_results.ResultRows:
    """Return the rows of the outputs, the arguments and the buffers of a module after a call."""
    recorder = result_recorder.ResultRecorder("", "")
    named = result_recorder.named_arguments(args, kwargs)
    if isinstance(original, torch.nn.Module):
        named += [(f"buffer {name}", value) for name, value in original.named_buffers()]
    recorder.note_call(0, out, named, is_random=False)
    return {(row["call"], row["name"]): row for row in recorder.rows}


def _differences(
    eager: compare_results.ResultRows,
    compiled: compare_results.ResultRows,
    wide: compare_results.ResultRows | None,
) -> Sequence[compare_results.DifferenceRow]:
    """Return the differences in which eager is not the side that is wrong, and that do not depend
    on rounding. Strides and memory that is shared are allowed to differ.
    """
    return [
        row
        for row in compare_results.find_differences(eager, compiled, wide or {})
        if row["side"] in ("compiled", "unknown")
        and row["what"] not in ("stride", "aliasing")
        and (row["what"] in ("values", "nan", "inf") or _is_exact(row, eager, wide))
    ]


def _is_exact(
    row: compare_results.DifferenceRow,
    eager: compare_results.ResultRows,
    wide: compare_results.ResultRows | None,
) -> bool:
    """Return whether an integer, a shape or a value of Python is the same in float64."""
    key = row["call"], row["name"]
    if wide is None or key not in wide or key not in eager:
        return False
    one, other = eager[key], wide[key]
    if row["what"] in ("shape", "value"):
        return one.get(row["what"]) == other.get(row["what"])
    return True


def _save(fd: int, value: Any) -> None:
    with os.fdopen(os.dup(fd), "wb") as file:
        torch.save(value, file)


def _load(fd: int) -> Any:
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        return torch.load(file, weights_only=False)


def _backend_of(compiled: Any) -> Any:
    """Return the backend of a compiled module, inside of what Dynamo puts around it."""
    found = getattr(getattr(compiled, "dynamo_ctx", None), "callback", None)
    for _ in range(8):
        inner = getattr(found, "_torchdynamo_orig_backend", None)
        if inner is None:
            break
        found = inner
    return found
