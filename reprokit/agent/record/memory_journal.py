"""Keep the last events of this process in memory that another process can read.

The memory is a file without a name in any folder (memfd_create(2)): it needs no disk, ends with the
process, and is read through ``/proc/PID/fd``. The process writes through a mapping, because a
program may close descriptors that it did not open, and get their numbers for files of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os

from ...core.shared.contract.journal_format import (
    MEMORY_BYTES,
    MEMORY_JOURNAL,
    NOW_BYTES,
    SLOT_BYTES,
    SLOTS,
    encode_slot,
)

PROT_READ_WRITE, MAP_SHARED = 3, 1
MAP_FAILED = ctypes.c_void_p(-1).value


class MemoryJournal:
    """The slots of this process; see ``journal_format.MEMORY_JOURNAL``.

    Raises:
        OSError: the kernel has no memory files, or no memory.
    """

    def __init__(self) -> None:
        self._fd = open_memory_file(MEMORY_JOURNAL)
        os.ftruncate(self._fd, MEMORY_BYTES)
        self._memory = _map_memory(self._fd)
        self._numbers = itertools.count()

    def append(self, line: bytes) -> None:
        """Write one line into the next slot. Threads need no lock: a number is used once."""
        number = next(self._numbers)
        at = NOW_BYTES + number % SLOTS * SLOT_BYTES
        self._memory[at : at + SLOT_BYTES] = encode_slot(number, line)

    def put_now(self, record: bytes) -> None:
        """Overwrite the record of what this process is doing now."""
        self._memory[:NOW_BYTES] = record

    def open_after_fork(self) -> None:
        """Give a forked child memory of its own; that of its parent stays mapped."""
        close_memory_file(self._fd, MEMORY_JOURNAL)
        self.__init__()  # type: ignore[misc]


def open_memory_file(name: str) -> int:
    """Return a descriptor of a new memory file with the pid of this process in its name."""
    return os.memfd_create(f"{name}{os.getpid()}", os.MFD_CLOEXEC)


def close_memory_file(fd: int, name: str) -> None:
    """Close a descriptor, unless the program has closed it and uses its number for its own file."""
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/self/fd/{fd}").startswith(f"/memfd:{name}"):
            os.close(fd)


def _map_memory(fd: int) -> memoryview:
    """Map the file. Python's mmap has a descriptor of its own, which it closes with the object."""
    map_file = ctypes.CDLL(None, use_errno=True).mmap
    map_file.restype = ctypes.c_void_p
    map_file.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    )
    address = map_file(None, MEMORY_BYTES, PROT_READ_WRITE, MAP_SHARED, fd, 0)
    if address in (None, MAP_FAILED):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return memoryview((ctypes.c_char * MEMORY_BYTES).from_address(address)).cast("B")
