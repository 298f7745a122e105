"""Read the machine code of cubins, and compile programs of kernels to cubins.

python cubins.py FILE ... runs each program, which leaves its cubin in Triton's cache.
"""

from __future__ import annotations

import hashlib
import runpy
import struct
import sys
from collections import Counter
from pathlib import Path


def machine_code(path: Path) -> str:
    """Return a digest of the text sections of a cubin, which have no names of kernels or files.

    A cubin is a 64-bit ELF file (elf(5)).
    """
    data = path.read_bytes()
    start, size, count, names = (
        struct.unpack_from("<Q", data, 0x28)[0],
        *struct.unpack_from("<HHH", data, 0x3A),
    )

    def section(number: int) -> tuple[int, int, int]:
        at = start + number * size
        offset, length = struct.unpack_from("<QQ", data, at + 0x18)
        return int(struct.unpack_from("<I", data, at)[0]), int(offset), int(length)

    table = section(names)[1]
    texts = []
    for number in range(count):
        name, offset, length = section(number)
        label = data[table + name : data.index(b"\0", table + name)]
        if label.startswith(b".text"):
            texts.append(data[offset : offset + length])
    assert texts, f"{path.name} has no machine code"
    return hashlib.sha256(b"\0".join(sorted(texts))).hexdigest()


def cubins_below(folder: Path) -> Counter[str]:
    """Return the machine codes of all cubins below a folder."""
    return Counter(machine_code(path) for path in sorted(folder.rglob("*.cubin")))


if __name__ == "__main__":
    for program in sys.argv[1:]:
        runpy.run_path(program)
