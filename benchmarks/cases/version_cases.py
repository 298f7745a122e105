"""What ``version_matrix`` runs with each version of torch, and the right answers."""

from __future__ import annotations

from dataclasses import dataclass

RELEASES = ("2.9.1", "2.10.0", "2.11.0", "2.12.1", "2.13.0", "2.14.1", "2.15.0")
"""The newest patch release of each supported minor version, oldest first."""
REFERENCE = "2.13.0"
"""The version whose signatures the others are compared with: the known bugs are those of it."""


@dataclass(frozen=True)
class Sample:
    """One program of samples/ with its options."""

    name: str
    """The file and its factory, or the file that runs as a command."""
    kind: str
    """The verdict with the reference version."""
    options: tuple[str, ...] = ()
    is_command: bool = False
    is_bug: bool = False
    """A bug of torch: a version that has it fixed gives ``ok``."""


SAMPLES = (
    Sample("cpp_compile_error.py:make", "exception", is_bug=True),
    Sample("crash.py:make", "crash", is_bug=True),
    Sample("exception_inductor.py:make", "exception", is_bug=True),
    Sample("graph_break.py:make", "graph-break"),
    Sample("hang.py:make", "hang", ("--stall", "10")),
    Sample("healthy.py:make", "ok"),
    Sample("kv_cache.py:make", "recompile-limit"),
    Sample("kv_cache.py:make_fixed", "ok"),
    Sample("max_autotune.py:make", "slow-compile", ("--timeout", "15")),
    Sample("symmetric_memory.py", "error-in-eager", is_command=True),
    Sample("wrong_result.py:make", "wrong-result", is_bug=True),
)
"""The samples for ``capture`` that need no device. Those for ``scale`` and ``kernel`` are checks of
their own.
"""
HANG_KINDS = (
    "python_loop",
    "native_spin_gil",
    "deadlock",
    "queue",
    "flock",
    "worker_sleep",
    "unroll",
    "cxx_sleep",
    "phase:lowering",
    "gloo_mismatch",
)
"""Kinds of tests/hangs/kinds.py with ten different causes."""
