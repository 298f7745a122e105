"""Wake the event loop of asyncio in a process, so that its thread runs bytecode.

A loop at rest waits in the kernel, and runs no pending call. It has a pair of sockets with which
its own threads wake it (``loop.call_soon_threadsafe``). A zero in it has no other effect. The
socket is copied with pidfd_getfd(2), which needs the right to attach to the process.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket

from reprokit.host.attach import open_requests
from reprokit.host.system import host_log, process_tree
from reprokit.host.watch import blocked_on

PIDFD_GETFD = 438
"""The number of the system call, on all processors."""


def wake_event_loops(pid: int) -> None:
    """Wake each event loop of a process. A loop that is not asyncio's is left alone."""
    links = process_tree.descriptor_links(pid)
    inodes = {
        int(link[8:-1]): number for number, link in links.items() if link.startswith("socket:[")
    }
    watched = set()
    for number, link in links.items():
        if link == "anon_inode:[eventpoll]":
            text = blocked_on.read_proc_file(f"/proc/{pid}/fdinfo/{number}")
            watched |= {int(fd) for fd in re.findall(r"^tfd:\s*(\d+)", text, re.MULTILINE)}
    for inode, peer in open_requests.unix_pairs().items():
        if inodes.get(inode) in watched and peer in inodes and inodes[peer] not in watched:
            with host_log.suppress(OSError):
                _send_zero(pid, inodes[peer])


def _send_zero(pid: int, descriptor: int) -> None:
    process = os.pidfd_open(pid)
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
        copy = call(PIDFD_GETFD, process, descriptor, 0)
        if copy < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        with socket.socket(fileno=copy) as own:
            own.send(b"\0", socket.MSG_DONTWAIT)
    finally:
        os.close(process)
