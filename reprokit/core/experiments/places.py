"""Places in which a repro is tried: fewer CPUs, no AVX-512, less memory, a namespace without a
network and a home, another root folder, another interpreter.

A place is a list of words joined by ``+``, such as ``cores=1+cpu=none``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from reprokit.core.shared.errors import BadInput

HERE, ISOLATED = "here", "isolated"
CPU_LEVELS = {"none": "default", "avx2": "avx2", "avx512": "avx512"}
"""The value of ``cpu=`` -> that of ``ATEN_CPU_CAPABILITY``, which ATen and Inductor read."""
_UNITS = {"M": 2**20, "G": 2**30}
_EXAMPLES = "here, isolated, cores=1, cpu=none, cpu=avx2, memory=8G, root=FOLDER, python=PATH"
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
_CHANGE_ROOT = """
set -e
root=$1; shift
shared=
while [ "$1" != -- ]; do shared="$shared $1"; shift; done
shift
new=$(mktemp -d); mount -t tmpfs tmpfs "$new"
for entry in "$root"/* ; do
    name=${entry##*/}; used=
    for folder in $shared; do [ "/$name" = "/$(echo "$folder" | cut -d/ -f2)" ] && used=1; done
    [ -n "$used" ] && continue
    if [ -L "$entry" ]; then cp -P "$entry" "$new/$name"
    elif [ -d "$entry" ]; then mkdir "$new/$name"; mount --rbind "$entry" "$new/$name"; fi
done
mkdir -p "$new/tmp"
for folder in $shared; do mkdir -p "$new$folder"; mount --rbind "$folder" "$new$folder"; done
here=$PWD
exec chroot "$new" sh -c 'cd "$0"; exec "$@"' "$here" "$@"
"""
"""Builds a root folder in memory from the entries of another one, so that nothing is written there.
"""


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

    def command(self, python: str, shared_folders: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Return the words before the file of a repro: the interpreter, and what enters the place.

        ``shared_folders`` are visible below the root of the place too; they replace the entries of
        the root with the same first name.
        """
        words: tuple[str, ...] = (python,)
        if self.cores or self.memory:
            limits = json.dumps({"cores": self.cores, "memory": self.memory})
            words = (python, "-I", "-c", _ENTER, limits, *words)
        if self.root:
            enter = ("sh", "-c", _CHANGE_ROOT, "sh", self.root, *shared_folders, "--")
            return (*NAMESPACES, *enter, *words)
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
        elif name == "cores" and value.isdigit() and int(value) > 0:
            fields["cores"] = int(value)
        elif name == "memory" and value[:-1].isdigit() and value[-1:] in _UNITS:
            fields["memory"] = int(value[:-1]) * _UNITS[value[-1]]
        elif name == "cpu" and value in CPU_LEVELS:
            variables = {"ATEN_CPU_CAPABILITY": CPU_LEVELS[value]}
            fields["variables"] = {**fields.get("variables", {}), **variables}
        elif name == "root" and value:
            fields["root"] = value
        elif (name == "python" and value) or (not sign and "/" in word):
            fields["python"] = value or word
        else:
            raise BadInput(f"--in {text!r}: {word!r} is no place; places are: {_EXAMPLES}")
    return Place(text, **fields)
