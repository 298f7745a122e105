"""How generated C++ is built with the sanitizers of GCC, for the agent and the host."""

from __future__ import annotations

import re

COMPILER_FLAGS = "-g1 -fno-omit-frame-pointer -fsanitize=address,undefined"
LIBRARIES = ("libasan.so", "libubsan.so")
"""What a process preloads that loads such code."""
MARK = "// reprokit: "
"""The start of the comment in a line of generated code that says where it comes from."""
_KERNEL = re.compile(r"/c[a-z2-7]{40,}\.(?:main|optimized)\.(?:cpp|o)\b")


def is_library(path: str) -> bool:
    """Return whether a path is that of a library of the sanitizers."""
    return path.rpartition("/")[2].startswith(LIBRARIES)


def is_of_kernel(command: str) -> bool:
    """Return whether a command builds a kernel, and not a header or a check of the compiler."""
    return _KERNEL.search(command) is not None
