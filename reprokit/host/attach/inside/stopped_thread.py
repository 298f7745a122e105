"""Stop one thread of a running process, and call a C function in it, with ptrace(2) on x86-64.

gdb 13 cannot call a function on a processor with AMX: it writes the vector registers with a size
that it knows, and the kernel wants the size that it reports itself (Linux, regset NT_X86_XSTATE).
Here the kernel reports the size, all registers are restored, and the other threads are not stopped.
A thread that is in a system call starts it again, as after a stop by a debugger.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import time
from types import TracebackType

from reprokit.host.system import host_log

PTRACE_CONT, PTRACE_SINGLESTEP, PTRACE_DETACH = 7, 9, 17
PTRACE_GETREGSET, PTRACE_SETREGSET = 0x4204, 0x4205
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207
PTRACE_GETSIGMASK, PTRACE_SETSIGMASK = 0x420A, 0x420B
PTRACE_EVENT_STOP = 128
WALL = 0x40000000
NT_PRSTATUS, NT_X86_XSTATE = 1, 0x202
MAX_STATE_BYTES = 1 << 16
"""AMX needs 11 KiB; the kernel reports how much it has written."""
STOP_TIMEOUT_S = CALL_TIMEOUT_S = 2.0
RED_ZONE_BYTES = 128
"""A function may use these bytes below its stack pointer (System V ABI for x86-64)."""
DIRECTION_FLAG = 0x400
SYSTEM_CALL = b"\x0f\x05"
"""The instruction that enters the kernel."""
FAULTS = frozenset(
    {signal.SIGTRAP, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}
)
"""Signals that the thread itself causes. They are not blocked, and the first two end a call."""
EPOLL_WAITS = frozenset({232, 281})
MAX_ERROR = 4096
"""Results of system calls above 2**64 minus this number are errors."""
SIGNAL_SET = struct.Struct("=Q")

_NAMES = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss"
    " fs_base gs_base ds es fs gs"
).split()
"""``struct user_regs_struct`` of the kernel."""
_ARGUMENTS = ("rdi", "rsi", "rdx", "rcx", "r8", "r9")
_SYSTEM_CALL_ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")
_LAYOUT = struct.Struct(f"={len(_NAMES)}Q")


class CannotStop(Exception):
    """The thread cannot be stopped, or a call in it failed; the message says why."""


class _Buffer(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class StoppedThread:
    """A context in which thread ``tid`` of process ``pid`` is stopped.

    All methods must be called by the thread that entered the context, which should end after it:
    the kernel then lets a thread go on that could not be stopped. Signals for both threads wait
    until the end of the context. A process that is left with the registers of a call would crash.

    Raises:
        CannotStop: a debugger is attached, the kernel forbids it, or the thread has ended.
    """

    def __init__(self, pid: int, tid: int) -> None:
        self._pid, self._tid = pid, tid
        self._saved: dict[int, bytes] = {}
        self._mask = b""
        self._blocked: set[signal.Signals | int] = set()

    def __enter__(self) -> StoppedThread:
        self._blocked = set(signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()))
        try:
            self._trace(PTRACE_SEIZE)
        except BaseException:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)
            raise
        try:
            self._trace(PTRACE_INTERRUPT)
            until = time.monotonic() + STOP_TIMEOUT_S
            while (status := self._wait(until)) >> 16 != PTRACE_EVENT_STOP:
                if status < 0:
                    raise CannotStop(f"thread {self._tid} did not stop in {STOP_TIMEOUT_S:g} s")
                self._trace(PTRACE_CONT, data=os.WSTOPSIG(status))
            for kind in (NT_PRSTATUS, NT_X86_XSTATE):
                self._saved[kind] = self._read_registers(kind)
            memory = ctypes.create_string_buffer(SIGNAL_SET.size)
            self._trace(PTRACE_GETSIGMASK, SIGNAL_SET.size, ctypes.addressof(memory))
            self._mask = memory.raw
            unblocked = sum(1 << (number - 1) for number in FAULTS)
            self._write_mask(SIGNAL_SET.pack((1 << 64) - 1 & ~unblocked))
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._release()

    def call(self, address: int, *arguments: int) -> int:
        """Call the C function at ``address`` with up to six integers, and return its result.

        It must not need a lock that the stopped thread may hold. Raises CannotStop if it does not
        return in ``CALL_TIMEOUT_S``, or if it crashes; the registers are restored then.
        """
        values = self._values()
        stack = (values["rsp"] - RED_ZONE_BYTES & ~0xF) - 8
        # the function returns to address 0, which stops the thread again
        write_memory(self._pid, stack, struct.pack("=Q", 0))
        values.update(zip(_ARGUMENTS, arguments, strict=False))
        values.update(rip=address, rsp=stack, rax=0, orig_rax=2**64 - 1)
        values["eflags"] &= ~DIRECTION_FLAG
        self._write_values(values)
        self._trace(PTRACE_CONT)
        return self._result(signal.SIGSEGV, "the call")

    def end_wait(self) -> None:
        """Let an interrupted epoll_wait(2) of the thread return without an event, as at its limit,
        when the thread goes on. Any other system call is not changed.
        """
        values = dict(zip(_NAMES, _LAYOUT.unpack(self._saved[NT_PRSTATUS]), strict=True))
        is_interrupted = values["rax"] > 2**64 - MAX_ERROR
        if values["orig_rax"] in EPOLL_WAITS and is_interrupted:
            values.update(rax=0, orig_rax=2**64 - 1)
            self._saved[NT_PRSTATUS] = _LAYOUT.pack(*(values[name] for name in _NAMES))

    def system_call(self, instruction: int, number: int, *arguments: int) -> int:
        """Make a system call with the instruction at this address, and return its result."""
        values = self._values()
        values.update(zip(_SYSTEM_CALL_ARGUMENTS, arguments, strict=False))
        values.update(rip=instruction, rax=number, orig_rax=2**64 - 1)
        self._write_values(values)
        self._trace(PTRACE_SINGLESTEP)
        return self._result(signal.SIGTRAP, f"system call {number}")

    def _result(self, expected: signal.Signals, what: str) -> int:
        """Wait until the thread stops with the ``expected`` signal, and return its result."""
        resume = PTRACE_CONT if expected == signal.SIGSEGV else PTRACE_SINGLESTEP
        until = time.monotonic() + CALL_TIMEOUT_S
        is_late = False
        while True:
            status = self._wait(until)
            if status < 0:
                is_late, until = True, until + CALL_TIMEOUT_S
                self._trace(PTRACE_INTERRUPT)
                continue
            number, is_event = os.WSTOPSIG(status), status >> 16 == PTRACE_EVENT_STOP
            values = self._values()
            is_back = expected == signal.SIGTRAP or values["rip"] == 0
            if number == expected and is_back and not is_event:
                break
            if is_late or not is_event:
                self._restore()
                name = signal.Signals(number).name
                raise CannotStop(
                    f"{what} did not return in {CALL_TIMEOUT_S:g} s"
                    if is_late
                    else f"{what} ended with {name}"
                )
            self._trace(resume)  # the whole process is stopped, by SIGSTOP
        result = values["rax"]
        self._restore()
        return result - 2**64 if result >> 63 else result

    def _release(self) -> None:
        try:
            with host_log.suppress(CannotStop):  # it may have been killed
                self._restore()
                if self._mask:
                    self._write_mask(self._mask)
            with host_log.suppress(CannotStop):
                self._trace(PTRACE_DETACH)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)

    def _restore(self) -> None:
        for kind, data in self._saved.items():
            self._write_registers(kind, data)

    def _write_mask(self, mask: bytes) -> None:
        memory = ctypes.create_string_buffer(mask, len(mask))
        self._trace(PTRACE_SETSIGMASK, SIGNAL_SET.size, ctypes.addressof(memory))

    def _wait(self, until: float) -> int:
        """Return the status of the next stop; -1 if there is none ``until`` then."""
        while True:
            try:
                pid, status = os.waitpid(self._tid, WALL | os.WNOHANG)
            except ChildProcessError as problem:
                raise CannotStop(f"thread {self._tid} has ended") from problem
            if pid:
                break
            if time.monotonic() > until:
                return -1
            time.sleep(0.0005)
        if not os.WIFSTOPPED(status):
            raise CannotStop(f"thread {self._tid} has ended")
        return status

    def _values(self) -> dict[str, int]:
        data = self._read_registers(NT_PRSTATUS)
        return dict(zip(_NAMES, _LAYOUT.unpack(data), strict=True))

    def _write_values(self, values: dict[str, int]) -> None:
        self._write_registers(NT_PRSTATUS, _LAYOUT.pack(*(values[name] for name in _NAMES)))

    def _read_registers(self, kind: int) -> bytes:
        memory = ctypes.create_string_buffer(MAX_STATE_BYTES)
        buffer = _Buffer(ctypes.addressof(memory), MAX_STATE_BYTES)
        self._trace(PTRACE_GETREGSET, kind, ctypes.addressof(buffer))
        return memory.raw[: buffer.size]

    def _write_registers(self, kind: int, data: bytes) -> None:
        memory = ctypes.create_string_buffer(data, len(data))
        buffer = _Buffer(ctypes.addressof(memory), len(data))
        self._trace(PTRACE_SETREGSET, kind, ctypes.addressof(buffer))

    def _trace(self, request: int, address: int = 0, data: int = 0) -> None:
        call = ctypes.CDLL(None, use_errno=True).ptrace
        call.restype = ctypes.c_long
        call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
        if call(request, self._tid, address, data) == -1:
            number = ctypes.get_errno()
            raise CannotStop(f"thread {self._tid} cannot be stopped: {os.strerror(number)}")


def is_supported() -> bool:
    """Return whether this machine has the registers that this module knows."""
    return platform.machine() == "x86_64"


def ignores_faults(pid: int) -> bool:
    """Return whether a process ignores a signal that ends a call. The kernel would set it to its
    default action.
    """
    mask = 1 << (signal.SIGSEGV - 1) | 1 << (signal.SIGTRAP - 1)
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return any(int(row.split()[1], 16) & mask for row in file if row.startswith("SigIgn:"))


def write_memory(pid: int, address: int, data: bytes) -> None:
    """Write into the memory of a process. Raises OSError if that is not permitted."""
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(data)


def find_system_call(pid: int) -> int:
    """Return the address of an instruction that enters the kernel, in the code that the kernel
    maps into each process; 0 if there is none.
    """
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        rows = [line.split() for line in file if line.rstrip().endswith("[vdso]")]
    for row in rows:
        begin, end = (int(word, 16) for word in row[0].split("-"))
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(begin)
            at = (memory.read(end - begin) or b"").find(SYSTEM_CALL)
        if at >= 0:
            return begin + at
    return 0
