"""Plan a bisection: which versions of torch it can try, and in which order.

A version is that of an existing interpreter, or of an environment that can be built. The order is
that of PEP 440, and builds of one version keep the order of the command line, because a version
such as ``2.14.0a0+git1a2b3c4`` has no date.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.version import Version

from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect import releases, torch_environments
from reprokit.host.bisect.torch_environments import CannotInstall, InstallOptions, parse_version
from reprokit.host.request import interpreter

Say = Callable[[str], None]


@dataclass(frozen=True)
class TorchVersion:
    """A version of torch that can be tried."""

    version: str
    python: str = ""
    """The interpreter that has it; empty where an environment is built."""

    @property
    def public(self) -> Version:
        """The version without its local part, by which versions are ordered."""
        return Version(Version(self.version).public)


@dataclass(frozen=True)
class BisectPlan:
    """The versions to try, from the good end to the bad end."""

    candidates: tuple[TorchVersion, ...]
    is_backwards: bool = False
    """The good end is the newer one, so the search is for the fix."""
    unplaced: tuple[tuple[str, str], ...] = ()
    """Interpreters without a known version of torch, and why."""

    @property
    def names(self) -> list[str]:
        """The name of each candidate: its version, with its interpreter where two are equal."""
        versions = [c.version for c in self.candidates]
        return [
            c.version if versions.count(c.version) == 1 else f"{c.version} ({c.python})"
            for c in self.candidates
        ]


def plan_bisection(
    good: str,
    bad: str,
    versions: Sequence[str],
    pythons: Sequence[str],
    options: InstallOptions,
    say: Say,
) -> BisectPlan:
    """Return the versions that can be tried between two ends.

    Raises:
        BadInput: an end or an option cannot be used.
    """
    is_path = {end: os.sep in end or end in pythons for end in (good, bad)}
    ends = [
        interpreter.check_interpreter(e, word) if is_path[e] else e
        for e, word in ((good, "--good"), (bad, "--bad"))
    ]
    paths = [ends[0]] * is_path[good] + [_full_path(p) for p in pythons] + [ends[1]] * is_path[bad]
    if paths:
        say("reading the versions of torch of the interpreters")
    have, unplaced = [], []
    for path in dict.fromkeys(paths):
        try:
            have.append(TorchVersion(_torch_of(path), path))
        except CannotInstall as problem:
            if path in ends:
                raise BadInput(f"{problem}; name a different end of the range") from problem
            say(f"left out: {problem}")
            unplaced.append((path, str(problem)))
    wanted = [parse_version(v) for v in versions]
    first, last = (
        _end(end, word, have, bool(versions) or not pythons)
        for end, word in zip(ends, ("--good", "--bad"), strict=True)
    )
    if first == last:
        raise BadInput(f"--good and --bad are both {first.version}; name two versions")
    if not versions and not pythons:
        low, high = sorted((first.public, last.public))
        wanted = [v for v in releases.known_releases(options) if low < v < high]
    missing = [
        TorchVersion(str(v)) for v in wanted if not any(_has(c, v) for c in (*have, first, last))
    ]
    everything = sorted(dict.fromkeys([*have, *missing, first, last]), key=lambda c: c.public)
    start, stop = sorted((everything.index(first), everything.index(last)))
    between = everything[start : stop + 1]
    if outside := [c.version for c in everything if c not in between]:
        say(f"not between the ends, so left out: {', '.join(outside)}")
    is_backwards = between[0] == last
    return BisectPlan(
        tuple(reversed(between) if is_backwards else between), is_backwards, tuple(unplaced)
    )


def _full_path(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BadInput(
            f"--interpreter {name}: there is no such program; give the path of an interpreter"
        )
    return os.path.abspath(path)


def _torch_of(path: str) -> str:
    try:
        return torch_environments.imported_torch_version(
            interpreter.check_interpreter(path, "--interpreter")
        )
    except BadInput as problem:  # for example a script of a broken build
        raise CannotInstall(str(problem)) from problem


def _has(candidate: TorchVersion, wanted: Version) -> bool:
    own = Version(candidate.version)
    return wanted in (own, Version(own.public))


def _end(end: str, word: str, have: Sequence[TorchVersion], is_buildable: bool) -> TorchVersion:
    """Return the candidate that ``--good`` or ``--bad`` names."""
    if os.sep in end:
        return next(c for c in have if c.python == end)
    wanted = parse_version(end)
    matching = [c for c in have if _has(c, wanted)]
    if len(matching) > 1:
        raise BadInput(
            f"{word} {end}: {' and '.join(c.python for c in matching)} have it; name one of these"
            " paths"
        )
    if not matching and not is_buildable:
        versions = ", ".join(c.version for c in have) or "none that runs"
        raise BadInput(
            f"{word} {end}: no --interpreter has it, they have {versions}; --versions {end} builds"
            " it"
        )
    return matching[0] if matching else TorchVersion(str(wanted))
