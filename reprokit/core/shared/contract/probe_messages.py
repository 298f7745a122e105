"""The messages between the host and the probe server: one JSON object per line, in both
directions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .run_spec import RunSpec


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """How the server prepares itself; an argument of its command line."""

    depth: str
    """``triton``, ``dynamo``, ``aot``, ``inductor`` or ``build``: what the server imports and
    compiles once.
    """
    cache: str
    """The folder of Inductor's cache."""
    imports: list[str] = field(default_factory=list)
    """Import statements of the program, for libraries that each child would import again."""


@dataclass(frozen=True, kw_only=True)
class ServerReady:
    """The server's first message."""

    ready: bool = False
    threads: int = 0
    cpu_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """Where an isolated process runs, and what it may write."""

    cwd: str
    """Its working directory."""
    path: str = ""
    """The file of the program that it runs a changed copy of; empty for a module or ``-c``."""
    home: str = ""
    """Its HOME; empty for that of the user."""
    own: list[str] = field(default_factory=list)
    """Folders whose changes stay: those of its run."""
    is_open: bool = False
    """It is not isolated: the machine cannot do so, and the user agreed."""


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """Run one program, or one factory target, in a forked child."""

    id: int
    folder: str
    """The run directory of the probe."""
    cache: str
    """The cache of its compilers, as a path that all of them can use."""
    file: str = ""
    target: RunSpec | None = None
    """The target that runs instead of ``file``."""
    is_eager: bool = False
    overrides: dict[str, Any] = field(default_factory=dict)
    """The settings that are different for this compile."""
    role: str = ""
    """The side of a comparison; empty if results are not recorded."""
    results: str = ""
    """The folder of the results of all roles of one program."""
    measures: str = ""
    """One of ``measured_kinds``: what is measured of the program after its end."""
    is_simulated: bool = False
    """It is measured on fake tensors, and nothing is executed."""
    stop: str | None = None
    """The phase after which the compile is ended."""
    is_backward: bool = False
    """The compile is ended after that phase of the backward graph."""
    checks_syntax: bool = False
    """The C++ compiler only checks the generated code."""
    memory_bytes: int = 0
    """The memory limit, above what the server itself uses."""
    file_bytes: int = 0
    isolation: Isolation | None = None
    """How the child is isolated from the machine; None if it is not."""
    openblas_threads: str | None = None
    """The user's OPENBLAS_NUM_THREADS."""


@dataclass(frozen=True, kw_only=True)
class ProbeStarted:
    """The child was forked."""

    id: int
    pid: int


@dataclass(frozen=True, kw_only=True)
class ProbeEnded:
    """The child has ended."""

    id: int
    status: int
    """The exit status of the child; negative is a signal."""
    cpu_s: float
    peak_rss_bytes: int
