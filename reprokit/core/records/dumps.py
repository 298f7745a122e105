"""Stacks and exceptions that a tool or the agent reported."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """One Python stack frame. Lists of frames have the innermost frame first."""

    file: str
    function: str
    line: int = 0


@dataclass(frozen=True)
class ThreadStack:
    """One thread's stack in one dump."""

    pid: int
    thread: str
    frames: tuple[Frame, ...]
    is_main: bool = False
    owns_gil: bool = False
    tid: int = 0
    """The kernel's thread id; 0 if the tool does not report it."""


@dataclass(frozen=True)
class Dump:
    """The stacks of one process at one time, from one tool."""

    number: int
    """1, 2, 3 ... in the order in which the dumps were taken."""
    tool: str
    """``py-spy`` or ``faulthandler``."""
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    problem: str = ""
    """The reason for missing threads; empty if there are threads."""


@dataclass(frozen=True)
class Raised:
    """One exception, innermost cause last in ``chain``."""

    chain: tuple[Link, ...]
    where: str = ""
    """The hook that saw it: ``uncaught``, ``call``, ``compile`` ..."""
    cid: str = ""
    """Dynamo's compile id, such as ``0/1``."""
    nodes: tuple[tuple[str, str], ...] = ()
    """The nodes of the graph on which Inductor worked: the name and the user's line of each."""


@dataclass(frozen=True)
class Link:
    """One exception of a chain."""

    type: str
    """Qualified: ``torch._inductor.exc.InductorError``."""
    message: str
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class Fault:
    """A fatal signal that faulthandler, or the C++ runtime on stderr, reported."""

    pid: int
    headline: str
    frames: tuple[Frame, ...] = ()
    source: str = ""
    """The innermost line of generated code, such as the call of a kernel; empty if it is not
    known.
    """
