"""Keep the last events of this process in memory that another process can read.

The memory is a file without a name in any folder (memfd_create(2)): it needs no disk, ends with the
process, and is read through ``/proc/PID/fd``. The process writes through a mapping, because a
program may close descriptors that it did not open, and get their numbers for files of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os

from ...core.shared.contract.journal_format import (
    MEMORY_BYTES,
    MEMORY_JOURNAL,
    NOW_BYTES,
    PROGRAM_BYTES,
    SLOT_BYTES,
    SLOTS,
    encode_slot,
)

PROT_READ_WRITE, MAP_SHARED = 3, 1
MAP_FAILED = ctypes.c_void_p(-1).value
FIRST_FD = 3
"""A program may have closed its standard streams, and C code writes to their numbers."""


class MemoryFile:
    """A memory file with the pid of this process in its name.

    Raises:
        OSError: the kernel has no memory files, or there is a limit on memory or descriptors.
    """

    def __init__(self, name: str, size: int = 0) -> None:
        low = os.memfd_create(f"{name}{os.getpid()}", os.MFD_CLOEXEC)
        try:
            self.fd = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, FIRST_FD)
        finally:
            os.close(low)
        try:
            if size:  # a page that is missing when it is written would end the program
                os.posix_fallocate(self.fd, 0, size)
            self._identity = self._read_identity()
        except OSError:
            os.close(self.fd)
            raise

    def read_text(self) -> str:
        """Return what is in it before the first zero; empty if the program has closed it."""
        if self._read_identity() != self._identity:
            return ""
        return os.pread(self.fd, PROGRAM_BYTES, 0).partition(b"\0")[0].decode()

    def close(self) -> None:
        """Close it, unless the program has closed it and uses its number for its own file."""
        with contextlib.suppress(OSError):
            if self._read_identity() == self._identity:
                os.close(self.fd)

    def _read_identity(self) -> tuple[int, int]:
        status = os.fstat(self.fd)
        return status.st_dev, status.st_ino


class MemoryJournal:
    """The slots of this process; see ``journal_format.MEMORY_JOURNAL``.

    Raises:
        OSError: there is no memory for them.
    """

    def __init__(self) -> None:
        self._file = MemoryFile(MEMORY_JOURNAL, MEMORY_BYTES)
        try:
            self._memory = _map_memory(self._file.fd)
        except OSError:
            self._file.close()
            raise
        self._numbers = itertools.count()

    def append(self, line: bytes) -> None:
        """Write one line into the next slot. Threads need no lock: a number is used once."""
        number = next(self._numbers)
        at = NOW_BYTES + number % SLOTS * SLOT_BYTES
        self._memory[at : at + SLOT_BYTES] = encode_slot(number, line)

    def put_now(self, record: bytes) -> None:
        """Overwrite the record of what this process is doing now."""
        self._memory[:NOW_BYTES] = record

    def close(self) -> None:
        """Close the file; the memory stays mapped."""
        self._file.close()


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
