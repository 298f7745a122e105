"""Run a program of a stranger with no network, no files of the user, and limits.

The jail shows the system's programs and libraries, the interpreters and reprokit, all of them
read-only, and one folder that can be written. It has its own process numbers, so that its processes
end with it. bubblewrap builds it where it is installed; otherwise the kernel's user namespaces do.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import reprokit
from reprokit.host.system.child_commands import CommandFailed, run_for_output

BUBBLEWRAP, NAMESPACES, NONE = "bubblewrap", "user namespaces", ""
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix", "/gnu"),
    "/sys/devices/system",  # the processors
)
"""Folders with programs and libraries."""
CONTROLS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus")
"""Files through which root changes the machine; capabilities do not protect them."""
MOUNT_POINTS = ("/mnt", "/media", "/srv")
"""Folders on which the root of the jail can be mounted, where only the jail sees it."""
SETTINGS = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "passwd", "group"),
    *("nsswitch.conf", "hosts", "protocols", "services"),
)
"""What programs read below ``/etc`` to start; there is nothing secret in it."""
TEMPORARY = ("tmp", "var/tmp")
"""Folders of temporary files, which are empty in the jail."""
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "CC", "CXX", "LD_LIBRARY_PATH")
FOLDERS_OF_PYTHON = """
import sys
print(*{sys.prefix, sys.base_prefix, *filter(None, sys.path)}, sep="\\n")
"""
ANSWER_S = 60.0
MAX_FILE_KB = 8 << 20
"""The largest file that the jail may write, in KiB."""
SHARE_OF_MEMORY = 0.75
"""The address space of a process, as a share of the memory of the machine."""
GPU_DEVICES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
_TRY_S = 20.0
_ENTER = (
    *("unshare", "--user", "--map-root-user", "--mount", "--net", "--uts", "--ipc", "--pid"),
    *("--fork", "--kill-child"),
)


@dataclass(frozen=True)
class Jail:
    """What encloses the program."""

    kind: str
    """``bubblewrap``, ``user namespaces``, or empty for nothing."""
    why_not: str = ""
    """Why there is no jail."""

    @property
    def description(self) -> str:
        """What encloses the program, in words."""
        if not self.kind:
            return "no jail"
        return f"a jail of {self.kind}: no network, no home folder, limits of memory and files"

    def command(
        self,
        words: Sequence[str],
        folder: Path,
        pythons: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Return the words that run a command in the jail, in ``folder``.

        The interpreters ``pythons`` and that of reprokit are visible. The command gets
        ``variables``, and of the user's only those that it needs to start.
        """
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        home = "/tmp" if self.kind else str(folder)  # noqa: S108 - it is empty in the jail
        environ = {**kept, "HOME": home, **(variables or {})}
        start = ["env", "-i", *(f"{name}={value}" for name, value in environ.items())]
        limited = ["sh", "-c", _limits(), "sh", *start, *words]
        visible = visible_folders([sys.executable, *pythons])
        if self.kind == BUBBLEWRAP:
            return [*_bubblewrap(folder, visible), *limited]
        if self.kind == NAMESPACES:
            return [*_ENTER, "sh", "-c", _build_root(folder, visible), "sh", *limited]
        return ["sh", "-c", f'cd {shlex.quote(str(folder))} && exec "$@"', "sh", *limited]


def find_jail(folder: Path) -> Jail:
    """Return the best jail that works on this machine; ``folder`` is used to try it."""
    problems = []
    for kind, tools in (
        (BUBBLEWRAP, ("bwrap",)),
        (NAMESPACES, ("unshare", "pivot_root", "setpriv")),
    ):
        if missing := [tool for tool in tools if shutil.which(tool) is None]:
            problems.append(f"{missing[0]} is not installed")
            continue
        try:
            words = [sys.executable, "-I", "-c", ""]
            run_for_output(Jail(kind).command(words, folder), _TRY_S)
            return Jail(kind)
        except CommandFailed as problem:
            problems.append(f"{kind}: {problem}")
    return Jail(NONE, "; ".join(problems))


def visible_folders(pythons: Sequence[str]) -> list[str]:
    """Return the folders of interpreters and of reprokit, outside of the system's own.

    Raises CommandFailed for an interpreter that does not run.
    """
    folders = {str(Path(reprokit.__file__).resolve().parent)}
    source = Path(reprokit.__file__).resolve().parents[1]
    templates = source / "templates"  # of a source tree; a wheel has them inside the package
    folders |= {str(templates)} if templates.exists() else set()
    for python in dict.fromkeys(pythons):
        folders.add(str(Path(python).parent))
        folders.add(str(Path(python).resolve().parent))
        output = run_for_output([python, "-I", "-c", FOLDERS_OF_PYTHON], ANSWER_S)
        folders |= {line for line in output.splitlines() if line.startswith("/")}
    kept: list[str] = []
    for name in sorted(one for one in folders if os.path.exists(one) and one != str(source)):
        if not any(_is_below(name, other) for other in (*SYSTEM, *kept)):
            kept.append(name)
    return kept


def _is_below(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder.rstrip('/')}/")


def has_gpu() -> bool:
    """Return whether the machine has a device of NVIDIA."""
    return any(os.path.exists(device) for device in GPU_DEVICES)


def _limits() -> str:
    """Return a shell script that sets limits and then becomes its arguments.

    CUDA reserves more addresses than the machine has memory, so a GPU means no limit of them.
    """
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    memory = "unlimited" if has_gpu() else str(int(pages * SHARE_OF_MEMORY) >> 10)
    return f'ulimit -c 0; ulimit -f {MAX_FILE_KB}; ulimit -v {memory}; exec "$@"'


def _bubblewrap(folder: Path, visible: Sequence[str]) -> list[str]:
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    words += [
        word for name in CONTROLS if os.path.exists(name) for word in ("--ro-bind", name, name)
    ]
    words += [word for name in TEMPORARY for word in ("--tmpfs", f"/{name}")]
    for path in SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            words += ["--ro-bind", path, path]
    for name in SETTINGS:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for path in visible:
        words += ["--ro-bind", path, path]
    for device in GPU_DEVICES:
        words += ["--dev-bind-try", device, device]
    return [*words, "--bind", str(folder), str(folder), "--chdir", str(folder)]


def _build_root(folder: Path, visible: Sequence[str]) -> str:
    """Return a shell script that builds the jail in a new mount namespace, and enters it.

    Each mount that it shows becomes read-only, with the flags that it has, before the folder and
    the devices are added.
    """
    here = str(folder)
    shown = [*SYSTEM, *(f"/etc/{name}" for name in SETTINGS), *visible]
    new = next(
        point
        for point in MOUNT_POINTS
        if os.path.isdir(point) and not any(_is_below(one, point) for one in (here, *shown))
    )
    rows = [
        "set -e",
        f"mount -t tmpfs tmpfs {new}",
        f'show() {{ mkdir -p {new}"$1"; mount --rbind "$1" {new}"$1"; }}',
        f'file() {{ mkdir -p {new}"${{1%/*}}"; : > {new}"$1"; mount --bind "$1" {new}"$1"; }}',
    ]
    for path in shown:
        if os.path.islink(path) and path in SYSTEM:
            rows.append(f"cp -P {path} {new}{path}")
        elif os.path.isdir(path):
            rows.append(f"show {shlex.quote(path)}")
        elif os.path.isfile(path):
            rows.append(f"file {shlex.quote(path)}")
    rows += [
        "while read -r _ _ _ _ point flags _; do",
        "    point=$(printf '%b' \"$point\")",
        '    [ -e "$point" ] || continue  # a mount of the machine, which the new root hides',
        f'    case "$point" in {new}/*)',
        '        mount -o "remount,bind,ro,${flags#r[wo],}" "$point" || mount -o'
        ' remount,bind,ro "$point"',
        "    esac",
        "done < /proc/self/mountinfo",
        f"cd {new}; mkdir -p etc proc dev/shm old {' '.join(TEMPORARY)}; cd /",
        *(f"file /dev/{name}" for name in ("null", "zero", "full", "random", "urandom")),
        *(f"file {device}" for device in GPU_DEVICES if os.path.exists(device)),
        f"cd {new}/dev; mount -t tmpfs tmpfs shm; cd /",
        f"ln -s /proc/self/fd {new}/dev/fd",
        f"mkdir -p {new}{shlex.quote(here)}",
        f"mount --bind {shlex.quote(here)} {new}{shlex.quote(here)}",
        f"mount -t proc proc {new}/proc",
    ]
    for name in CONTROLS:
        if os.path.exists(name):
            rows += [
                f"mount --bind {new}{name} {new}{name}",
                f"mount -o remount,bind,ro {new}{name}",
            ]
    rows += [
        "ip link set lo up 2>/dev/null || true",
        f"cd {new}; pivot_root . old; umount -l /old; rmdir /old",
        f"cd {shlex.quote(here)}",
        'exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"',
    ]
    return "\n".join(rows)
