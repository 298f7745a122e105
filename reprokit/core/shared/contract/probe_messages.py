"""The messages between the host and the probe server: one JSON object a line, in both
directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """How the server warms up; an argument of its command line."""

    depth: str
    """``triton``, ``dynamo``, ``aot``, ``inductor`` or ``build``: what is imported and compiled
    once.
    """
    cache: str
    """The folder of Inductor's cache."""


@dataclass(frozen=True, kw_only=True)
class ServerReady:
    """The server's first message."""

    ready: bool = False
    threads: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """Run one program, or one factory target, in a forked child."""

    id: int
    folder: str
    """The run directory of the probe."""
    file: str = ""
    target: RunSpec | None = None
    """Runs instead of ``file``."""
    is_eager: bool = False
    overrides: dict[str, Any] = field(default_factory=dict)
    """With which other settings to compile."""
    role: str = ""
    """Which side of a comparison it is; empty where results are not recorded."""
    results: str = ""
    """The folder of the results of all roles."""
    stop: str | None = None
    """The phase behind which the compile ends."""
    is_backward: bool = False
    """It ends behind that phase of the backward."""
    memory_bytes: int = 0
    """Above what the server holds."""
    file_bytes: int = 0
    openblas_threads: str | None = None
    """The user's OPENBLAS_NUM_THREADS."""


@dataclass(frozen=True, kw_only=True)
class ProbeStarted:
    """The child was forked."""

    id: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class ProbeEnded:
    """The child has ended, and all that it left."""

    id: int
    status: int
    """Its exit status; negative is a signal."""
    cpu_s: float
    peak_rss_bytes: int
    strays: int = 0
    """Processes that it started and left behind."""
