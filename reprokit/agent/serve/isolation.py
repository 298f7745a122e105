"""Isolate a process from the machine: it reads what it could read before, and changes nothing.

python -m reprokit.agent.serve.isolation SPEC COMMAND...    where SPEC is the JSON of an Isolation

The process gets its own mounts, network and System V IPC. Every file system becomes read-only. An
overlay in memory takes what the process writes to the user's folders, and it vanishes with the
process. Only the folders of its own run can be written. There is no network but the loopback
device, and the capabilities to change any of this are dropped. It can send signals only to its own
descendants, from Linux 6.12 on.

A user needs no rights for this: the kernel's user namespaces give them to the process alone. Root
with CAP_SYS_ADMIN needs no user namespaces. Both need Linux 5.12. Where the machine forbids it, as
containers do, Landlock (Linux 5.13) denies instead: what the process writes outside the folders of
its run is an error, and so is a TCP connection from Linux 6.7 on. Landlock cannot deny a change of
the mode, the owner or the times of a file.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import json
import os
import resource
import socket
import struct
import sys
import tempfile

from ...core.shared.contract.probe_messages import Isolation
from ...core.shared.contract.serialize import from_json

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x8000000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MS_NOSUID, MS_NODEV = 2, 4
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
SYS_MOUNT_SETATTR = 442
ATTR_RDONLY = 1
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446
LANDLOCK_VERSION, PATH_BENEATH, CONNECT_TCP = 1, 1, 2
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
WRITES_BY_VERSION = (0, WRITE_FILE | sum(1 << bit for bit in range(4, 13)), 1 << 13, TRUNCATE)
"""The rights to write, remove and make files; to link and rename across folders; to truncate. Each
is in the next version of Landlock.
"""
SCOPE_SOCKETS, SCOPE_SIGNALS = 1, 2
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 24, 47, 4
CAPABILITY_VERSION = 0x20080522
CAP_SETFCAP = 31
"""What root needs to be root in a user namespace, too; a jail drops it."""
LAST_CAPABILITY = 63
FILE_CAPABILITIES = (1 << 0) | (1 << 1) | (1 << 3) | (1 << 4)
"""What root needs to use the files of other users: chown, dac_override, fowner, fsetid. With
dac_read_search it could open a file by its handle, past all mounts.
"""
SYSTEM = frozenset(
    "bin boot dev etc gnu lib lib32 lib64 libx32 nix proc run sbin snap sys usr".split()
)
"""Folders of the root folder that have no overlay: programs do not write there."""
WRITTEN_BYTES = 1 << 31
"""The most that a process may write outside the folders of its run."""
MAX_PROCESSES = 4096
SCRATCH = "/dev/shm"  # noqa: S108
"""Where the overlays keep what is written, before a new file system hides it."""
EMPTIED = ("/run", "/dev/mqueue")
"""Folders of sockets and queues that lead to other processes."""
DEVICES = (
    *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"),
    *("nvidia*", "dri", "kfd"),
)
"""What may be written below ``/dev``; the last three are GPUs."""
JOIN_SESSION_KEYRING = 1
SYS_KEYCTL = {"x86_64": 250, "aarch64": 219, "ppc64le": 271, "s390x": 280, "riscv64": 219}


class NotIsolated(Exception):
    """The process could not be isolated; the message is the reason."""


_libc = ctypes.CDLL(None, use_errno=True)


def enter_isolation(spec: Isolation) -> None:
    """Isolate this process, which has one thread, and change to its working directory.

    Raises:
        NotIsolated: the kernel, or its configuration, does not allow it. The process may be
            isolated in part, and must end.
    """
    if spec.is_open:
        _enter_place(spec)
        return
    uid, gid = os.geteuid(), os.getegid()
    if keyctl := SYS_KEYCTL.get(os.uname().machine):
        _libc.syscall(keyctl, JOIN_SESSION_KEYRING, None)
    parts = CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC
    is_root = uid == 0 and _libc.unshare(parts) == 0
    if is_root or (_can_keep_user(uid) and _libc.unshare(parts | CLONE_NEWUSER) == 0):
        if not is_root:
            with contextlib.suppress(FileNotFoundError):
                _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{uid} {uid} 1")
            _write("/proc/self/gid_map", f"{gid} {gid} 1")
        written = _make_unwritable(spec)
        _drop_capabilities(FILE_CAPABILITIES if is_root else 0)
        with contextlib.suppress(NotIsolated):  # it also forbids mounts, and open descriptors
            _restrict(written, SCOPE_SIGNALS)
    else:
        why = f"user namespaces: {os.strerror(ctypes.get_errno())}"
        try:
            _restrict(spec.own, SCOPE_SIGNALS | SCOPE_SOCKETS, CONNECT_TCP)
        except NotIsolated as problem:
            raise NotIsolated(f"{why}; {problem}") from problem
        os.environ["TMPDIR"] = tempfile.tempdir = spec.own[0]
    _enter_place(spec)
    _set_limit(resource.RLIMIT_NPROC, MAX_PROCESSES)


def _enter_place(spec: Isolation) -> None:
    if spec.home:
        os.environ["HOME"] = spec.home
    os.chdir(spec.cwd)


def _make_unwritable(spec: Isolation) -> list[str]:
    """Leave the process only its own folders, and what vanishes with it, to write; return them."""
    _mount("", "/", "", MS_REC | MS_PRIVATE)
    own = [os.path.realpath(path) for path in spec.own]
    mounted = _mount_points()
    for path in own:
        _mount(path, path, "", MS_BIND)
    kept = _opened([*_folders_of_python(), *own])
    _set_read_only("/", True)
    overlaid = _mount_overlays(spec, mounted)
    memory = [SCRATCH, *filter(os.path.isdir, EMPTIED)]
    for path in memory:
        _mount_memory(path)
    with contextlib.suppress(NotIsolated):
        _mount("devpts", "/dev/pts", "devpts", MS_NOSUID, "newinstance,ptmxmode=0666")
    for path, folder in kept.items():
        os.makedirs(path, exist_ok=True)  # it may be in a folder that is empty now
        _mount(f"/proc/self/fd/{folder}", path, "", MS_BIND)
        os.close(folder)
    for path in own:
        _set_read_only(path, False)
    _start_loopback()
    if not any(_is_below(tempfile.gettempdir(), path) for path in overlaid):
        os.environ["TMPDIR"] = tempfile.tempdir = own[0]
    return [*own, *memory, *overlaid]


def _restrict(written: list[str], scope: int, network: int = 0) -> None:
    """Forbid this process for good to write outside some folders and to reach others, by Landlock.

    Raises:
        NotIsolated: the kernel does not have it.
    """
    version = _libc.syscall(SYS_LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION)
    if version < 1:
        raise NotIsolated(f"Landlock: {os.strerror(ctypes.get_errno())}")
    writes = sum(WRITES_BY_VERSION[: version + 1])
    known = (writes, network, scope)[: 3 if version >= 6 else 2 if version >= 4 else 1]
    attributes = struct.pack(f"{len(known)}Q", *known)
    rules = _call("Landlock", _libc.syscall, SYS_LANDLOCK_CREATE, attributes, len(attributes), 0)
    rights = dict.fromkeys(written, writes)
    for name in DEVICES:
        rights |= dict.fromkeys(glob.glob(f"/dev/{name}"), writes & (WRITE_FILE | TRUNCATE))
    for path, granted in rights.items():
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", granted, folder)
        _call("Landlock", _libc.syscall, SYS_LANDLOCK_ADD, rules, PATH_BENEATH, rule, 0)
        os.close(folder)
    _call("no new privileges", _libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("Landlock", _libc.syscall, SYS_LANDLOCK_RESTRICT, rules, 0)
    os.close(rules)


def _mount_overlays(spec: Isolation, mounted: list[str]) -> list[str]:
    """Mount an overlay on each folder of the user, and return these folders; what is written there
    is kept in memory.

    A folder that has one of the mount points ``mounted`` below it cannot have an overlay, or the
    overlay would hide them. So the home folder and the working directory are tried too. They have
    overlays of their own if a folder between belongs to a different user, because an overlay cannot
    copy that one. A folder without an overlay is read-only.
    """
    _mount_memory(SCRATCH)
    tops = [f"/{name}" for name in sorted(os.listdir("/")) if name not in SYSTEM]
    home, temporary = os.path.expanduser("~"), os.environ.get("TMPDIR", "")
    more = filter(None, (home, temporary, os.path.dirname(spec.path), spec.cwd))
    folders = [os.path.realpath(path) for path in (*tops, *more)]
    opened = _opened([path for path in folders if path != "/" and os.path.isdir(path)])
    done: list[str] = []
    for number, (path, folder) in enumerate(opened.items()):
        outer = next((one for one in done if _is_below(path, one)), "")
        has_mounts = any(_is_below(point, path) and point != path for point in mounted)
        if not has_mounts and (not outer or _belongs_to_others(path, outer)):
            upper, work = f"{SCRATCH}/upper-{number}", f"{SCRATCH}/work-{number}"
            os.mkdir(upper)
            os.mkdir(work)
            options = f"lowerdir=/proc/self/fd/{folder},upperdir={upper},workdir={work}"
            with contextlib.suppress(NotIsolated):
                _mount("overlay", path, "overlay", MS_NOSUID | MS_NODEV, options)
                done.append(path)
        os.close(folder)
    return done


def _belongs_to_others(path: str, outer: str) -> bool:
    """Return whether a folder, or one between it and ``outer``, has a different owner or group."""
    while path != outer:
        facts = os.stat(path)
        if os.geteuid() and (facts.st_uid, facts.st_gid) != (os.geteuid(), os.getegid()):
            return True
        path = os.path.dirname(path)
    return False


def _mount_points() -> list[str]:
    with open("/proc/self/mountinfo", "rb") as file:
        names = [row.split()[4] for row in file]
    return [os.fsdecode(name.decode("unicode_escape").encode("latin-1")) for name in names]


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _folders_of_python() -> list[str]:
    """Return the folders of the interpreter and of what it has imported.

    A library that is loaded again through an overlay would be a different file for the loader.
    """
    found = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    for name in ("torch", "numpy", "triton"):
        file = getattr(sys.modules.get(name), "__file__", None)
        found |= {os.path.dirname(os.path.realpath(file))} if file else set()
    return sorted(path for path in found if path.split("/")[1] not in SYSTEM)


def _opened(paths: list[str]) -> dict[str, int]:
    """Return the folders with open descriptors, which an overlay does not hide."""
    return {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in dict.fromkeys(paths)}


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (os.fsencode(word) or None for word in (source, target, kind))
    data = os.fsencode(options) or None
    _call(f"mount of {target}", _libc.mount, *words, ctypes.c_ulong(flags), data)


def _mount_memory(path: str) -> None:
    _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV, f"size={WRITTEN_BYTES},mode=1777")


def _set_read_only(path: str, is_read_only: bool) -> None:
    """Make all file systems at and below a path read-only, or make one writable again."""
    bits = (ATTR_RDONLY, 0) if is_read_only else (0, ATTR_RDONLY)
    attributes = struct.pack("QQQQ", *bits, 0, 0)
    flags = AT_RECURSIVE if is_read_only else 0
    _call(
        f"read-only {path}",
        _libc.syscall,
        *(SYS_MOUNT_SETATTR, AT_FDCWD, os.fsencode(path), flags, attributes, len(attributes)),
    )


def _start_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        request = struct.pack("16sH14x", b"lo", IFF_UP)
        fcntl.ioctl(opened, SIOCSIFFLAGS, request)


def _can_keep_user(uid: int) -> bool:
    """Return whether the kernel allows this process to have its user in a user namespace."""
    data = (ctypes.c_uint32 * 6)()
    _libc.capget(struct.pack("Ii", CAPABILITY_VERSION, 0), data)
    return uid != 0 or bool(data[0] >> CAP_SETFCAP & 1)


def _drop_capabilities(kept: int) -> None:
    """Drop all capabilities except ``kept``, a set of bits, for this process and its children."""
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for number in range(LAST_CAPABILITY + 1):
        if not kept >> number & 1:
            _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)
    header = struct.pack("Ii", CAPABILITY_VERSION, 0)
    data = struct.pack("IIIIII", kept, kept, 0, 0, 0, 0)
    _call("dropping capabilities", _libc.capset, header, data)
    _call("no new privileges", _libc.prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def _set_limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY or hard > limit:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, hard))


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError as problem:
        raise NotIsolated(f"user namespaces: {problem}") from problem


def _call(what: str, function: ctypes._NamedFuncPointer, *words: object) -> int:
    result: int = function(*words)
    if result == -1:
        raise NotIsolated(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def main() -> int:
    """Isolate this process, and become the command."""
    spec, *words = sys.argv[1:]
    try:
        enter_isolation(from_json(Isolation, json.loads(spec)))
        os.execvp(words[0], words)
    except (NotIsolated, OSError, ValueError) as problem:
        sys.stderr.write(f"{problem}\n"[:1_000])
    return 1


if __name__ == "__main__":
    sys.exit(main())
