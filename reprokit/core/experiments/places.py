"""Places in which a repro is tried: fewer CPUs, no AVX-512, less memory, a namespace without a
network, a different root folder or interpreter, a simulated GPU.

A place is a list of words joined by ``+``, such as ``cores=1+cpu=none``.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.shared.errors import BadInput

HERE, ISOLATED = "here", "isolated"
CPU_LEVELS = {"none": "default", "avx2": "avx2", "avx512": "avx512"}
"""The value of ``cpu=`` -> that of ``ATEN_CPU_CAPABILITY``, which ATen and Inductor read."""
_UNITS = {"M": 2**20, "G": 2**30}
_EXAMPLES = (
    "here, isolated, cores=1, cpu=none, cpu=avx2, memory=8G, gpu=h100, gpu=none, root=FOLDER,"
    " python=PATH"
)
NO_GPU = "none"
"""The value of ``gpu=`` for the CPU."""
_ENTER = """
import json, os, resource, sys
limits = json.loads(sys.argv[1])
if limits["cores"]:
    own = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, own[:limits["cores"]])
if limits["memory"]:
    resource.setrlimit(resource.RLIMIT_AS, (limits["memory"],) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""The program that sets the limits and then becomes the program of the repro."""
NAMESPACES = ("unshare", "--user", "--map-root-user", "--mount", "--net", "--uts", "--ipc")
"""What enters new namespaces, without a network."""


@dataclass(frozen=True)
class Place:
    """One place, as its words describe it."""

    name: str
    python: str = ""
    """The interpreter; empty for the usual one."""
    cores: int = 0
    memory: int = 0
    """Bytes of address space; 0 for no limit."""
    is_isolated: bool = False
    root: str = ""
    gpu: str = ""
    """The name of a GPU to simulate, ``none`` for the CPU, and empty for the device of the pack."""
    variables: dict[str, str] = field(default_factory=dict)

    def tools(self) -> tuple[str, ...]:
        """Return the programs that it needs."""
        return (
            ("unshare", "mount", "chroot")
            if self.root
            else ("unshare",)
            if self.is_isolated
            else ()
        )

    def command(
        self, python: str, new_root: str = "", shared_folders: tuple[str, ...] = ()
    ) -> tuple[str, ...]:
        """Return the words before the file of a repro: the interpreter, and what enters the place.

        ``new_root`` is a folder on which the root of the place is mounted. ``shared_folders`` are
        visible there too; they replace the entries of the root with the same first name.
        """
        words: tuple[str, ...] = (python,)
        if self.cores or self.memory:
            limits = json.dumps({"cores": self.cores, "memory": self.memory})
            words = (python, "-I", "-c", _ENTER, limits, *words)
        if self.root:
            script = _enter_root(self.root, new_root, shared_folders)
            return (*NAMESPACES, "sh", "-c", script, "sh", *words)
        return (*NAMESPACES, *words) if self.is_isolated else words


def parse_place(text: str) -> Place:
    """Return the place that the words describe; raises BadInput for anything else."""
    fields: dict[str, Any] = {}
    for word in text.split("+"):
        name, sign, value = word.partition("=")
        if word == HERE:
            continue
        if word == ISOLATED:
            fields["is_isolated"] = True
            fields["variables"] = {**fields.get("variables", {}), "HOME": "/nonexistent"}
        elif name == "cores" and value.isdecimal() and int(value) > 0:
            fields["cores"] = int(value)
        elif (
            name == "memory" and value[:-1].isdecimal() and value[-1:] in _UNITS and int(value[:-1])
        ):
            fields["memory"] = int(value[:-1]) * _UNITS[value[-1]]
        elif name == "cpu" and value in CPU_LEVELS:
            variables = {"ATEN_CPU_CAPABILITY": CPU_LEVELS[value]}
            fields["variables"] = {**fields.get("variables", {}), **variables}
        elif name in ("root", "gpu") and value:
            fields[name] = value
        elif (name == "python" and value) or (not sign and "/" in word):
            fields["python"] = value or word
        else:
            raise BadInput(f"--in {text!r}: {word!r} is not a place; the places are: {_EXAMPLES}")
    return Place(text, **fields)


def _enter_root(root: str, new_root: str, shared_folders: tuple[str, ...]) -> str:
    """Return a shell script that runs its arguments below a root folder in memory.

    It has the entries of ``root``, so that nothing is written there.
    """
    old, new = shlex.quote(root), shlex.quote(new_root)
    taken = "|".join(shlex.quote(folder.split("/")[1]) for folder in shared_folders)
    shared = [
        f"mkdir -p {new}{shlex.quote(folder)}; mount --rbind {shlex.quote(folder)}"
        f" {new}{shlex.quote(folder)}"
        for folder in shared_folders
    ]
    return "\n".join(
        [
            "set -e",
            "here=$PWD",
            f"mkdir -p {new}; mount -t tmpfs tmpfs {new}",
            f"for entry in {old}/*; do",
            "    name=${entry##*/}",
            f'    case "$name" in {taken}) continue;; esac',
            f'    if [ -L "$entry" ]; then cp -P "$entry" {new}/"$name"',
            f'    elif [ -d "$entry" ]; then mkdir {new}/"$name";'
            f' mount --rbind "$entry" {new}/"$name"; fi',
            "done",
            f"mkdir -p {new}/tmp",  # noqa: S108
            *shared,
            f'exec chroot {new} sh -c \'cd "$0"; exec "$@"\' "$here" "$@"',
        ]
    )
