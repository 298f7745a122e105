"""Count the CPU instructions of this process with the kernel's performance counters."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct

_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
"""The number of ``perf_event_open`` by machine. Source: the tables of system calls of Linux."""
_SIZE = 112
"""Bytes of ``struct perf_event_attr``, version 5 of it."""
_USER_MODE_ONLY = 1 << 5 | 1 << 6
"""The bits ``exclude_kernel`` and ``exclude_hv``: what needs no privilege."""
HARDWARE, INSTRUCTIONS = 0, 1
"""``PERF_TYPE_HARDWARE`` and ``PERF_COUNT_HW_INSTRUCTIONS``."""


class InstructionCounter:
    """Counts the instructions that all current threads of this process retire in user mode.

    ``problem`` is why there is no count, as a clause; empty if there is one.
    """

    def __init__(self, kind: int = HARDWARE, event: int = INSTRUCTIONS) -> None:
        self.problem = ""
        self._counters: list[int] = []
        number = _SYSTEM_CALLS.get(platform.machine())
        if number is None or not os.path.isdir("/proc/self/task"):
            self.problem = f"they cannot be counted on {platform.system()} {platform.machine()}"
            return
        for thread in os.listdir("/proc/self/task"):
            counter, problem = _open_counter(number, kind, event, int(thread))
            if problem == errno.ESRCH:  # the thread has ended
                continue
            if problem:
                self.problem = _why(problem)
                self.close()
                return
            self._counters.append(counter)

    def read(self) -> int:
        """Return the count since the counters were opened; 0 if there are none."""
        return sum(int.from_bytes(os.read(one, 8), "little") for one in self._counters)

    def close(self) -> None:
        """Close the counters."""
        for counter in self._counters:
            with contextlib.suppress(OSError):
                os.close(counter)
        self._counters = []


def _open_counter(number: int, kind: int, event: int, thread: int) -> tuple[int, int]:
    """Return the file of a counter for a thread, and the error of the kernel, which is 0 without
    one.
    """
    attributes = bytearray(_SIZE)
    struct.pack_into("IIQ", attributes, 0, kind, _SIZE, event)
    struct.pack_into("Q", attributes, 40, _USER_MODE_ONLY)
    library = ctypes.CDLL(None, use_errno=True)
    pointer = (ctypes.c_char * _SIZE).from_buffer(attributes)
    arguments = [ctypes.c_long(n) for n in (thread, -1, -1, 8)]  # 8: closed by exec
    file = library.syscall(ctypes.c_long(number), pointer, *arguments)
    return (file, 0) if file >= 0 else (-1, ctypes.get_errno())


def _why(problem: int) -> str:
    if problem in (errno.EACCES, errno.EPERM):
        level = "not readable"
        with contextlib.suppress(OSError), open("/proc/sys/kernel/perf_event_paranoid") as file:
            level = file.read().strip()
        return f"the kernel forbids to count them (kernel.perf_event_paranoid is {level})"
    if problem in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "this machine has no counter of instructions, as many virtual machines"
    if problem == errno.ENOSYS:
        return "this kernel has no performance counters"
    return f"the kernel refuses to count them: {os.strerror(problem)}"
