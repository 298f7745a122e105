"""The verdict of a run and its signature."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import ClassVar

from reprokit.core.records.claims import UsersRun
from reprokit.core.shared.contract import run_names

NO_PHASE = "no phase"
LAST_LINE = "last line on stderr: "
"""The start of the evidence of a program that ended itself."""
_FRAME = r"(?:[\w./-]+\.py|<\w+>):[\w<>.]+"
_SITE = re.compile(r" \| (?P<site>[a-z -]+, [^|]*)$")
_FRAMES = re.compile(rf"{_FRAME}(?: < {_FRAME})*")


@dataclass(frozen=True)
class Verdict:
    """What happened: kind, phase and cause, with the evidence for each."""

    about: ClassVar[type[UsersRun]] = UsersRun
    packed_as: ClassVar[str] = run_names.VERDICT_FILE

    kind: str
    phase: str | None
    cause: str | None
    reason: str
    """One sentence."""
    evidence: tuple[str, ...] = ()
    detail: str = ""
    """The details of the cause: which lock, child, file or rank."""
    also: tuple[str, ...] = ()
    """Further causes that hold at the same time."""
    path: tuple[str, ...] = ()
    """Which process or thread waits for which, outermost first."""
    work: dict[str, str] = field(default_factory=dict)
    """The current work of the compiler: ``pass``, ``line``, ``node``, ``graph``, ``kernel``,
    ``direction``; only keys that are known.
    """
    simulated: tuple[str, ...] = ()
    """The differences between the simulated device and a real one; empty for a real device. The
    signature does not depend on it.
    """
    stage: str = ""
    """The stage of a comparison of caches that fails, such as ``warm``; empty if no cache is
    needed.
    """
    responsible: str = ""
    """Who is responsible: one of ``parties.PARTIES``; empty if nothing failed."""
    responsible_because: tuple[str, ...] = ()
    """The evidence for ``responsible``, one sentence each."""
    responsible_place: str = ""
    """``FILE:LINE`` of the user's code, or the symbol, that is responsible; empty if it is not
    known.
    """


@dataclass(frozen=True)
class Identity:
    """The parts of a signature. The title is these parts in one line, for people."""

    kind: str = ""
    phase: str = ""
    """Empty if the failure is in no phase."""
    what: str = ""
    """The message, reason, guard or family of results, normalised; empty if there are only
    stacks.
    """
    place: str = ""
    """Frames, innermost first, or the operator or pass; empty if none is known."""
    message: str = ""
    """A message that another run of the failure may lose: searched for, but not in the title."""
    site: str = ""
    """The error of a crash and its operator, from a run with sanitizers; empty without one."""

    @property
    def title(self) -> str:
        """``kind: phase | what @ place | site``."""
        return f"{self.title_without_site} | {self.site}" if self.site else self.title_without_site

    @property
    def title_without_site(self) -> str:
        """``kind: phase | what @ place``, as a run without sanitizers has it."""
        head = f"{self.kind}: {self.phase or NO_PHASE}"
        between = " in " if self.kind == "crash" else " @ "
        tail = between.join(part for part in (self.what, self.place) if part)
        return f"{head} | {tail}" if tail else head


def identity_of_title(title: str) -> Identity:
    """Return the parts of a title, for packs and ledgers from before 0.2, which have no parts."""
    kind, _, rest = title.partition(": ")
    phase, _, tail = rest.partition(" | ")
    phase = "" if phase == NO_PHASE else phase
    if kind == "crash" and (match := _SITE.search(tail)):
        return dataclasses.replace(
            identity_of_title(title[: -len(match.group())]), site=match["site"]
        )
    if kind == "hang" and _FRAMES.fullmatch(tail):
        return Identity(kind, phase, "", tail)
    between = " in " if kind == "crash" else " @ "
    what, _, place = tail.rpartition(between) if between in tail else (tail, "", "")
    if kind == "crash" and not _FRAMES.fullmatch(place):
        return Identity(kind, phase, tail)
    return Identity(kind, phase, what, place)


@dataclass(frozen=True)
class Signature:
    """The identity of a verdict: the same bug has the same signature on any machine and at any
    size.
    """

    about: ClassVar[type[UsersRun]] = UsersRun
    packed_as: ClassVar[str] = run_names.SIGNATURE_FILE

    id: str
    """Twelve hexadecimal digits of the SHA-256 of ``algorithm`` and ``title``."""
    title: str
    """``kind: phase | frames or normalised message``."""
    algorithm: int
    explain: tuple[str, ...] = ()
    """One line for each step from the evidence to the title."""
    parts: Identity = field(default_factory=Identity)
