"""Add a pending call to a running Python process.

The main thread runs the call (``Py_AddPendingCall``) before its next bytecode. The GIL is never
taken at an arbitrary stop, and no function that may hold a lock there, such as malloc, is called:
the text of the call is in a page of its own. A native loop and a blocked main thread never run the
call. Then its text is replaced by one that does nothing.

:class:`StoppedThread` makes the calls on x86-64, and gdb on other processors.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from reprokit.host.attach.inside import gdb_calls, stopped_thread
from reprokit.host.attach.inside.injection import CannotRunInside
from reprokit.host.attach.inside.stopped_thread import CannotStop, StoppedThread
from reprokit.host.system import host_log

PAGE_BYTES = gdb_calls.PAGE_BYTES
READ_WRITE, PRIVATE_ANONYMOUS = 3, 34
"""PROT_READ | PROT_WRITE and MAP_PRIVATE | MAP_ANONYMOUS of mmap(2)."""
MMAP, MUNMAP = 9, 11
"""Numbers of system calls on x86-64."""
NOTHING = b"0\0"
"""The text of a call that does nothing."""
# a name of __main__, or a file that is not closed, would be left behind
_CALL = (
    "try:\n (lambda file: (exec(file.read(), {{}}), file.close()))(open({file!r}))\n"
    "except BaseException: pass\n\0"
)
_ADD, _RUN = "Py_AddPendingCall", "PyRun_SimpleString"


class Caller(Protocol):
    """One way to make these calls in a process. All raise CannotRunInside."""

    def map_page(self) -> int:
        """Map a page that can be written, and return its address."""

    def add_call(self, address: int, ends_wait: bool) -> bool:
        """Add a pending call that runs the text at ``address``; False if the queue is full.

        With ``ends_wait``, a main thread that waits for events of a selector runs it at once.
        """

    def unmap_page(self, address: int) -> None:
        """Unmap the page."""


class PendingCall:
    """A pending call of one process, in a page of its own.

    Raises:
        CannotRunInside: the process cannot be stopped, or has no symbols.
    """

    def __init__(self, pid: int, caller: Caller | None = None) -> None:
        self._pid = pid
        self._caller = caller or choose_caller(pid)
        self._address = self._caller.map_page()

    def start(self, program: Path, ends_wait: bool = False) -> None:
        """Add the call. Raises CannotRunInside if that is not possible.

        ``ends_wait`` is for a main thread in ``select`` of the module selectors: the caller gets an
        empty list, as at its limit.
        """
        try:
            text = _CALL.format(file=str(program)).encode()
            stopped_thread.write_memory(self._pid, self._address, text)
            is_added = self._caller.add_call(self._address, ends_wait)
        except (CannotRunInside, OSError) as problem:
            self._caller.unmap_page(self._address)
            raise CannotRunInside(str(problem)) from problem
        if not is_added:
            self._caller.unmap_page(self._address)
            raise CannotRunInside("the process has too many pending calls")

    def remove(self) -> None:
        """Unmap the page, after the program has run."""
        with host_log.suppress(CannotRunInside):  # the process may have ended since
            self._caller.unmap_page(self._address)

    def cancel(self) -> None:
        """Let the call do nothing, if it has not run yet. The page stays: the call may come."""
        with host_log.suppress(OSError):
            stopped_thread.write_memory(self._pid, self._address, NOTHING)


def describe_way() -> str:
    """Return what happens to a process that gets a pending call; empty if nothing can add one."""
    if stopped_thread.is_supported():
        return "its main thread is stopped three times for a moment, and runs code"
    return "gdb stops it three times for a moment, and its main thread runs code" * bool(
        gdb_calls.find_gdb()
    )


class _StoppedCaller:
    """Stops the main thread for each call, and no other thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._symbols = find_symbols(pid, (_ADD, _RUN))
        self._instruction = stopped_thread.find_system_call(pid)

    def map_page(self) -> int:
        no_file, offset = 2**64 - 1, 0
        address = self._system_call(
            MMAP, 0, PAGE_BYTES, READ_WRITE, PRIVATE_ANONYMOUS, no_file, offset
        )
        if -PAGE_BYTES < address < 0:
            raise CannotRunInside(f"the process got no memory: {os.strerror(-address)}")
        return address

    def add_call(self, address: int, ends_wait: bool) -> bool:
        function, run = self._symbols[_ADD], self._symbols[_RUN]

        def add(thread: StoppedThread) -> int:
            result = thread.call(function, run, address) & 0xFFFFFFFF
            if ends_wait and not result:
                thread.end_wait()
            return result

        return self._run(add) == 0

    def unmap_page(self, address: int) -> None:
        self._system_call(MUNMAP, address, PAGE_BYTES)

    def _system_call(self, number: int, *arguments: int) -> int:
        return self._run(lambda thread: thread.system_call(self._instruction, number, *arguments))

    def _run(self, use: Callable[[StoppedThread], int]) -> int:
        def stop_and_use() -> int:
            with StoppedThread(self._pid, self._pid) as thread:
                return use(thread)

        with ThreadPoolExecutor(max_workers=1) as pool:  # its thread ends after the call
            try:
                return pool.submit(stop_and_use).result()
            except (CannotStop, OSError) as problem:
                raise CannotRunInside(str(problem)) from problem


def choose_caller(pid: int) -> Caller:
    """Return the way for this processor. Raises CannotRunInside if there is none."""
    if not stopped_thread.is_supported():
        return gdb_calls.GdbCaller(pid)
    try:
        if stopped_thread.ignores_faults(pid):
            raise CannotRunInside("the process ignores SIGSEGV or SIGTRAP, which end a call")
        return _StoppedCaller(pid)
    except (OSError, ELFError) as problem:
        raise CannotRunInside(f"the process cannot be read: {problem}") from problem


def find_symbols(pid: int, names: tuple[str, ...]) -> dict[str, int]:
    """Return the addresses of functions of the interpreter in a process.

    Raises CannotRunInside if a symbol is missing, OSError or ELFError if a file cannot be read.
    """
    begins: dict[str, int] = {}
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            words = line.rstrip("\n").split(maxsplit=5)
            if len(words) == 6 and words[2].strip("0") == "":  # the beginning of a file
                begins.setdefault(words[5], int(words[0].split("-")[0], 16))
    own = os.readlink(f"/proc/{pid}/exe")
    libraries = [path for path in begins if "libpython" in os.path.basename(path)]
    for path in (*libraries, own):
        if path not in begins:
            continue
        with open(f"/proc/{pid}/root{path}", "rb") as file:
            found = _addresses(ELFFile(file), begins[path], names)
        if len(found) == len(names):
            return found
    raise CannotRunInside(gdb_calls.NO_SYMBOL)


def _addresses(elf: ELFFile, begin: int, names: tuple[str, ...]) -> dict[str, int]:
    first = next(s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD")
    bias = begin - first["p_vaddr"] // PAGE_BYTES * PAGE_BYTES
    for section in elf.iter_sections():
        if not isinstance(section, SymbolTableSection):
            continue
        symbols = {name: section.get_symbol_by_name(name) or () for name in names}
        found = {
            name: bias + symbol["st_value"]
            for name, rows in symbols.items()
            for symbol in rows
            if symbol["st_shndx"] != "SHN_UNDEF"
        }
        if len(found) == len(names):
            return found
    return {}
