"""Stacks and exceptions as a tool or the agent reported them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Frame:
    """One Python stack frame, innermost first wherever frames stand in a list."""

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
    """The kernel's thread id, where the tool tells it."""


@dataclass(frozen=True)
class Dump:
    """What one tool said of one process at one time."""

    number: int
    """1, 2, 3 ... in the order in which the dumps were taken."""
    tool: str
    """``py-spy`` or ``faulthandler``."""
    pid: int
    threads: tuple[ThreadStack, ...] = ()
    problem: str = ""
    """Why there are no threads; empty when there are."""


@dataclass(frozen=True)
class Raised:
    """One exception, innermost cause last in ``chain``."""

    chain: tuple[Link, ...]
    where: str = ""
    """``uncaught``, ``call``, ``compile`` ...: which hook saw it."""
    cid: str = ""
    """Dynamo's compile id, such as ``0/1``."""


@dataclass(frozen=True)
class Link:
    """One exception of a chain."""

    type: str
    """Qualified: ``torch._inductor.exc.InductorError``."""
    message: str
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True)
class Fault:
    """A fatal signal as faulthandler, or the C++ runtime on stderr, told it."""

    pid: int
    headline: str
    frames: tuple[Frame, ...] = ()
