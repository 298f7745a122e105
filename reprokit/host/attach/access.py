"""Find out whether the memory of a process can be read, and if not, what permits it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import psutil

from reprokit.core.shared.errors import BadInput
from reprokit.host.system import host_log, process_tree
from reprokit.host.watch import blocked_on, stacks

YAMA_FILE = "/proc/sys/kernel/yama/ptrace_scope"
"""0: a process may read those of the same user. 1: only its descendants. 2: with CAP_SYS_PTRACE. 3:
none (Documentation/admin-guide/LSM/Yama.rst of Linux).
"""
CAP_SYS_PTRACE = 19
"""Its bit in the field CapEff of proc(5)."""


def check_access(root_pid: int) -> str:
    """Return why the stacks of a process cannot be read, with what permits it; empty if they can.

    Raises:
        BadInput: neither the process nor a descendant runs Python.
    """
    family = [process.pid for process in process_tree.family_of(root_pid)]
    pythons = [pid for pid in family if process_tree.is_python(pid)]
    unreadable = [pid for pid in family if not _can_read_link(pid)]
    if not pythons and not unreadable:
        raise BadInput(
            f"neither process {root_pid} ({blocked_on.redacted_command_line(root_pid)[:100]}) nor a"
            " process below it runs Python"
        )
    return next((why for pid in pythons or unreadable if (why := _why_unreadable(pid))), "")


def _why_unreadable(pid: int) -> str:
    if stacks.find_py_spy() is None:
        return "py-spy is not installed with reprokit: pip install py-spy"
    if why := _why_unsupported(pid):
        return why
    try:
        with open(f"/proc/{pid}/mem", "rb"):  # needs the same right as py-spy
            return ""
    except OSError as problem:
        host_log.log_ignored(problem)
        return _advice(pid)


def _advice(pid: int) -> str:
    """Return which right is missing to read the memory of ``pid``, and who can give it."""
    what = f"the memory of process {pid} cannot be read"
    owner = _owner(pid)
    if os.geteuid() not in (0, owner):
        return f"{what}: it belongs to {_user_name(owner)}; run reprokit as that user, or with sudo"
    if os.geteuid() == 0 and not _has_ptrace_capability():
        return (
            f"{what}: this container has no SYS_PTRACE capability; start it with docker run"
            " --cap-add=SYS_PTRACE, or in a pod set securityContext.capabilities.add: [SYS_PTRACE]"
        )
    scope = blocked_on.read_proc_file(YAMA_FILE).strip()
    if scope in ("1", "2", "3"):
        change = (
            "kernel.yama.ptrace_scope is 3, which only a restart of the machine changes"
            if scope == "3"
            else f"kernel.yama.ptrace_scope is {scope}; run reprokit with sudo, or allow it with"
            " sudo sysctl kernel.yama.ptrace_scope=0"
        )
        return f"{what}: {change}"
    return (
        f"{what}: the kernel or a security module forbids it; run reprokit with sudo, or in the"
        " same container"
    )


def _why_unsupported(pid: int) -> str:
    """Return why py-spy cannot read this interpreter; empty if it may."""
    names: Sequence[str] = ()
    with host_log.suppress(OSError):
        text = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        names = [line.rpartition("/")[2] for line in text.splitlines() if "python3" in line]
    if any(name.startswith("libpython3.") and "t.so" in name for name in names) or any(
        name.startswith("python3.") and name.endswith("t") for name in names
    ):
        return (
            f"process {pid} runs a free-threaded build of Python, whose stacks py-spy cannot read;"
            " reprokit uses what the kernel reports"
        )
    return ""


def _can_read_link(pid: int) -> bool:
    try:
        os.readlink(f"/proc/{pid}/exe")
    except PermissionError as problem:
        host_log.log_ignored(problem)
        return False
    except OSError as problem:
        host_log.log_ignored(problem)  # a thread of the kernel, or it has ended
    return True


def _owner(pid: int) -> int:
    with host_log.suppress(psutil.Error):
        return psutil.Process(pid).uids().real
    return -1


def _user_name(uid: int) -> str:
    import pwd

    with host_log.suppress(KeyError):
        return f"user {pwd.getpwuid(uid).pw_name}"
    return f"uid {uid}" if uid >= 0 else "a different user"


def _has_ptrace_capability() -> bool:
    for line in blocked_on.read_proc_file("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & 1 << CAP_SYS_PTRACE)
    return False
