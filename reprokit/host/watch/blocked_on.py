"""Find what a blocked thread waits for: its system call and the file, pipe, socket or process in
the arguments (proc(5), syscall(2)).
"""

from __future__ import annotations

import os
import platform
import signal
import struct
import time
from collections.abc import Iterable

import psutil

from reprokit.core.records.process_state import HeldLock, cut_words
from reprokit.core.redaction.command_words import command_text
from reprokit.core.shared.contract.journal_format import PROGRAM_SIGNAL, STACKS_SIGNAL
from reprokit.host.system import host_log, process_tree

# The system calls that can block, from unistd.h of the kernel for each architecture.
_X86 = {
    0: "read",
    1: "write",
    7: "poll",
    17: "pread64",
    19: "readv",
    20: "writev",
    23: "select",
    34: "pause",
    35: "nanosleep",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    56: "clone",
    58: "vfork",
    61: "wait4",
    72: "fcntl",
    73: "flock",
    74: "fsync",
    128: "rt_sigtimedwait",
    130: "rt_sigsuspend",
    202: "futex",
    219: "restart_syscall",
    208: "io_getevents",
    230: "clock_nanosleep",
    232: "epoll_wait",
    247: "waitid",
    257: "openat",
    270: "pselect6",
    271: "ppoll",
    275: "splice",
    281: "epoll_pwait",
    288: "accept4",
    299: "recvmmsg",
    435: "clone3",
    449: "futex",
}
_ARM = {
    4: "io_getevents",
    22: "epoll_pwait",
    25: "fcntl",
    32: "flock",
    56: "openat",
    63: "read",
    64: "write",
    65: "readv",
    66: "writev",
    67: "pread64",
    72: "pselect6",
    73: "ppoll",
    76: "splice",
    82: "fsync",
    95: "waitid",
    98: "futex",
    101: "nanosleep",
    115: "clock_nanosleep",
    128: "restart_syscall",
    133: "rt_sigsuspend",
    137: "rt_sigtimedwait",
    202: "accept",
    203: "connect",
    206: "sendto",
    207: "recvfrom",
    211: "sendmsg",
    212: "recvmsg",
    220: "clone",
    242: "accept4",
    243: "recvmmsg",
    260: "wait4",
    435: "clone3",
    449: "futex",
}
_NAMES = {"x86_64": _X86, "aarch64": _ARM}.get(platform.machine(), {})
_HAS_FD = frozenset(
    "read write pread64 readv writev connect accept accept4 sendto recvfrom sendmsg recvmsg"
    " recvmmsg fcntl flock fsync epoll_wait epoll_pwait splice".split()
)
_SIGNALS_OF_PROGRAMS = tuple(
    int(number)
    for number in signal.valid_signals()
    if number
    not in {
        *(signal.SIGINT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE),
        *(signal.SIGABRT, signal.SIGTRAP, signal.SIGXFSZ, signal.SIGKILL, signal.SIGSTOP),
        *(STACKS_SIGNAL, PROGRAM_SIGNAL),
    }
    and number <= signal.SIGRTMIN
)
_LOCKING = {7, 38}  # F_SETLKW and F_OFD_SETLKW of fcntl(2)
_P_PID, _P_PIDFD = 1, 3
MAX_FDS = 8
"""Descriptors of one system call that are described."""


def current_system_call(pid: int, tid: int) -> tuple[str, list[int]]:
    """Return the name and arguments of the system call that a thread is in.

    The name is empty if the thread runs, or if the kernel refuses access.
    """
    words = read_proc_file(f"/proc/{pid}/task/{tid}/syscall").split()
    if not words or not words[0].lstrip("-").isdigit() or int(words[0]) < 0:
        return "", []
    args = [int(w, 16) for w in words[1:7]]
    name = _NAMES.get(int(words[0]), f"syscall {words[0]}")
    if name in ("select", "pselect6") and args and args[0] == 0:
        return "sleep", args  # time.sleep before Python 3.11
    if name == "fcntl" and args[1] not in _LOCKING:
        return "fcntl without waiting", args
    return name, args


FUTEX_COMMAND, FUTEX_WAIT_BITSET, FUTEX_CLOCK_REALTIME = 127, 9, 256
LONG_WAIT_S = 20.0
_LIMITS = {
    "futex": 3,
    "poll": 2,
    "ppoll": 2,
    "select": 4,
    "pselect6": 4,
    "epoll_wait": 3,
    "epoll_pwait": 3,
}
"""The argument with the time after which a system call returns."""
_IN_MILLISECONDS = frozenset({"poll", "epoll_wait", "epoll_pwait"})


def has_limit(name: str, args: list[int]) -> bool:
    """Return whether a system call returns after a time by itself."""
    at = _LIMITS.get(name, len(args))
    if at >= len(args):
        return False
    if name in _IN_MILLISECONDS:
        return args[at] & 1 << 31 == 0  # a negative number is no limit
    return args[at] != 0


def waits_so_far(pid: int, tid: int) -> int:
    """Return how often a thread has waited for something since it started (proc(5), status)."""
    with host_log.suppress(ValueError):
        for line in read_proc_file(f"/proc/{pid}/task/{tid}/status").splitlines():
            if line.startswith("voluntary_ctxt_switches:"):
                return int(line.split()[1])
    return 0


def waits_for_long(pid: int, tid: int) -> bool:
    """Return whether a thread waits for a different one, without a limit or with one that is far.

    It runs only when its wait ends. A wait with a short limit is repeated by a loop.
    """
    name, args = current_system_call(pid, tid)
    if name != "futex" or len(args) < 4:
        return False
    if not args[3]:
        return True
    data = _memory(pid, args[3], 16)
    if len(data) < 16:
        return False
    seconds, nanoseconds = struct.unpack("=qq", data)
    left_s = seconds + nanoseconds / 1e9
    if args[1] & FUTEX_COMMAND == FUTEX_WAIT_BITSET:  # a point in time
        left_s -= time.time() if args[1] & FUTEX_CLOCK_REALTIME else time.monotonic()
    return bool(left_s > LONG_WAIT_S)


class DescriptorLinks:
    """Describes descriptors of many threads. The descriptors of all processes are read only once,
    within a time limit.
    """

    def __init__(self) -> None:
        self._pipes: dict[str, set[int]] | None = None
        self._peers: dict[int, dict[int, str]] = {}

    def describe_wait(self, pid: int, name: str, args: list[int]) -> tuple[str, int]:
        """Describe what a system call waits for. Also return the pid of the child in its arguments,
        or of the process that holds its file lock; 0 for none or any.
        """
        if name == "wait4" and args:
            child = args[0] if args[0] < 1 << 31 else 0
            return (f"child {child}" if child else "any child"), child
        if name == "waitid" and len(args) > 1:
            child = (
                args[1]
                if args[0] == _P_PID
                else _pid_of_pidfd(pid, args[1])
                if args[0] == _P_PIDFD
                else 0
            )
            return (f"child {child}" if child else "any child"), child
        if name in ("flock", "fcntl") and args:
            return self.describe_descriptor(pid, args[0]), holder_of_file_lock(pid)
        fds: list[int] = []
        if name in _HAS_FD and args:
            fds = [args[0]]
        elif name in ("poll", "ppoll") and len(args) > 1:
            fds = _polled(pid, args[0], args[1])
        elif name in ("select", "pselect6") and len(args) > 1:
            fds = _selected(pid, args[0], args[1])
        elif name == "openat" and len(args) > 1:
            return _text(pid, args[1]), 0
        if name.startswith("epoll") and fds:
            fds = _epolled(pid, fds[0]) or fds
        return ", ".join(self.describe_descriptor(pid, fd) for fd in fds[:MAX_FDS]), 0

    def describe_descriptor(self, pid: int, fd: int) -> str:
        """Describe a descriptor: a path, a pipe and the processes that have it open, or a socket
        and its peer.
        """
        try:
            link = os.readlink(f"/proc/{pid}/fd/{fd}")
        except OSError as problem:
            host_log.log_ignored(problem)
            return f"descriptor {fd}"
        if link.startswith("pipe:"):
            self._pipes = processes_by_link("pipe:") if self._pipes is None else self._pipes
            pids = sorted(self._pipes.get(link, set()) - {pid})
            names = ", ".join(f"{p} ({cut_words(redacted_command_line(p), 80)})" for p in pids[:4])
            users = f"also open in process {names}" if names else "open in no other process"
            return f"descriptor {fd}, a pipe; {users}"
        if link.startswith("socket:"):
            return f"descriptor {fd}, {self._sockets(pid).get(fd, 'a socket')}"
        return link if link.startswith("/") else f"descriptor {fd}, {link}"

    def _sockets(self, pid: int) -> dict[int, str]:
        if pid not in self._peers:
            peers = self._peers[pid] = {}
            with host_log.suppress(psutil.Error, OSError):
                for connection in psutil.Process(pid).net_connections("all"):
                    address = connection.raddr
                    peer = ":".join(map(str, address)) if isinstance(address, tuple) else address
                    peers[connection.fd] = f"a socket to {peer or 'nobody'} ({connection.status})"
                    is_named = any((peer, connection.laddr))
                    if connection.family.name == "AF_UNIX" and not is_named:
                        peers[connection.fd] = "an unnamed socket"  # of a pair
        return self._peers[pid]


def find_locks(waiter: int, family: Iterable[int], paths: Iterable[str]) -> tuple[HeldLock, ...]:
    """Return the file locks that processes of ``family`` hold, and those on ``paths``, from
    ``/proc/locks``.

    ``waiter`` is the process that waits for a lock; its own locks are left out.
    """
    pids, wanted = set(family), {p for p in paths if p}
    found: list[HeldLock] = []
    for line in read_proc_file("/proc/locks").splitlines():
        words = line.split()
        if "->" in words or len(words) < 6 or not words[4].lstrip("-").isdigit():
            continue
        pid, inode = int(words[4]), words[5].rsplit(":", 1)[-1]
        path = _path_of_inode(pid, int(inode)) if inode.isdigit() and pid > 0 else ""
        if path and pid != waiter and (pid in pids or path in wanted):
            found.append(HeldLock(path, pid, redacted_command_line(pid)))
    known = {lock.path for lock in found}
    if wanted - known:  # the holder may have ended, and a child may have inherited the descriptor
        opened = processes_by_link("/")
        for path in wanted - known:
            users = sorted(opened.get(path, set()) - {waiter})[:4]
            found += [HeldLock(path, p, redacted_command_line(p), is_holder=False) for p in users]
    return tuple(sorted(set(found), key=lambda h: (h.path, h.pid)))


def holder_of_file_lock(waiter: int) -> int:
    """Return the process that holds the file lock for which a process waits, 0 if it is not known.

    ``/proc/locks`` has the waiters of a lock behind it, with an arrow (proc(5)).
    """
    holder = 0
    for line in read_proc_file("/proc/locks").splitlines():
        words = line.split()
        if words[1:2] == ["->"]:
            if words[5:6] == [str(waiter)]:
                return holder
        elif len(words) > 4:
            holder = max(0, int(words[4]))  # -1 for a lock of an open file description
    return 0


def redacted_command_line(pid: int) -> str:
    """Return the command line of a process, without the values of secret options."""
    argv = read_proc_file(f"/proc/{pid}/cmdline").rstrip("\0").split("\0")
    return command_text(argv).strip()


def catches_signal(pid: int, number: int) -> bool:
    """Return whether a process has a handler for signal ``number``; False if it has ended."""
    for line in read_proc_file(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (number - 1))
    return False


def handles_signals(pid: int) -> bool:
    """Return whether a process has a handler for a signal other than SIGINT, those of a crash, and
    those of ``reprokit.watch()``.
    """
    return any(catches_signal(pid, number) for number in _SIGNALS_OF_PROGRAMS)


def read_proc_file(path: str) -> str:
    """Read a file in /proc; return "" if it does not exist or access is refused."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError as problem:
        host_log.log_ignored(problem)
        return ""


def _path_of_inode(pid: int, inode: int) -> str:
    with host_log.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with host_log.suppress(OSError):
                if os.stat(f"/proc/{pid}/fd/{fd}").st_ino == inode:
                    return os.readlink(f"/proc/{pid}/fd/{fd}")
    return ""


def processes_by_link(prefix: str, budget_s: float = 1.0) -> dict[str, set[int]]:
    """Return the processes that have each link open, for links of descriptors that begin with
    ``prefix``.

    The newest processes are searched first, for ``budget_s`` seconds.
    """
    found: dict[str, set[int]] = {}
    until = time.monotonic() + budget_s
    for name in sorted(os.listdir("/proc"), key=lambda n: -int(n) if n.isdigit() else 0):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        if time.monotonic() > until:
            break
        for link in process_tree.descriptor_links(int(name)).values():
            if link.startswith(prefix):
                found.setdefault(link, set()).add(int(name))
    return found


def _pid_of_pidfd(pid: int, fd: int) -> int:
    for line in read_proc_file(f"/proc/{pid}/fdinfo/{fd}").splitlines():
        if line.startswith("Pid:"):
            return max(int(line.split()[1]), 0)
    return 0


def _polled(pid: int, address: int, count: int) -> list[int]:
    """Return the descriptors of a ``struct pollfd`` array in the memory of ``pid``."""
    data = _memory(pid, address, 8 * min(count, MAX_FDS))
    return [fd for fd, _ in struct.iter_unpack("=i4s", data[: len(data) // 8 * 8]) if fd >= 0]


def _selected(pid: int, count: int, address: int) -> list[int]:
    """Return the descriptors of an ``fd_set`` in the memory of ``pid``."""
    bits = int.from_bytes(
        _memory(pid, address, (min(count, 1024) + 7) // 8) if address else b"", "little"
    )
    return [fd for fd in range(min(count, 1024)) if bits >> fd & 1][:MAX_FDS]


def _text(pid: int, address: int) -> str:
    """Return a C string in the memory of ``pid``, such as a path."""
    return _memory(pid, address, 512).split(b"\0")[0].decode("utf-8", "replace")


def _memory(pid: int, address: int, size: int) -> bytes:
    with (
        host_log.suppress(OSError, OverflowError, ValueError),
        open(f"/proc/{pid}/mem", "rb", 0) as memory,
    ):
        memory.seek(address)
        return memory.read(size) or b""
    return b""


def _epolled(pid: int, fd: int) -> list[int]:
    rows = [line.split() for line in read_proc_file(f"/proc/{pid}/fdinfo/{fd}").splitlines()]
    return [int(row[1]) for row in rows if len(row) > 1 and row[0] == "tfd:"]
