"""Which versions of torch a bisection can ask, in which order: interpreters that are there, and
what can be built.

Each interpreter is asked what it has. The order is that of PEP 440, and between builds of one
version that of the command line: nothing in ``2.14.0a0+git1a2b3c4`` says when it was made.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from packaging.version import Version

from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect import releases, torch_environments
from reprokit.host.bisect.torch_environments import CannotInstall, InstallOptions, version_of
from reprokit.host.request import interpreter

Say = Callable[[str], None]


@dataclass(frozen=True)
class TorchVersion:
    """A version that can be asked."""

    version: str
    python: str = ""
    """The interpreter that has it; empty where an environment is built."""

    @property
    def public(self) -> Version:
        """What the order goes by: builds for CPU and CUDA are one release."""
        return Version(Version(self.version).public)


@dataclass(frozen=True)
class BisectPlan:
    """What is asked, from the end that was told to be good to the one that was told to be bad."""

    candidates: tuple[TorchVersion, ...]
    is_backwards: bool = False
    """The good end is the newer one: when was it fixed?"""
    unplaced: tuple[tuple[str, str], ...] = ()
    """Interpreters that do not say which torch they have, and why."""

    @property
    def names(self) -> list[str]:
        """What each candidate is called: its version, and its interpreter where two have the
        same.
        """
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
    """Find out what can be asked between two ends; raises BadInput."""
    is_path = {end: os.sep in end or end in pythons for end in (good, bad)}
    ends = [
        interpreter.check_interpreter(e, word) if is_path[e] else e
        for e, word in ((good, "--good"), (bad, "--bad"))
    ]
    paths = [ends[0]] * is_path[good] + [_found(p) for p in pythons] + [ends[1]] * is_path[bad]
    if paths:
        say("asking the interpreters which torch they have")
    have, unplaced = [], []
    for path in dict.fromkeys(paths):
        try:
            have.append(TorchVersion(_torch_of(path), path))
        except CannotInstall as problem:
            if path in ends:
                raise BadInput(f"{problem}; name another end of the range") from problem
            say(f"left out: {problem}")
            unplaced.append((path, str(problem)))
    wanted = [version_of(v) for v in versions]
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


def _found(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise BadInput(
            f"--interpreter {name}: there is no such program; give the path of an interpreter"
        )
    return os.path.abspath(path)


def _torch_of(path: str) -> str:
    try:
        return torch_environments.torch_of(interpreter.check_interpreter(path, "--interpreter"))
    except BadInput as problem:  # a script that stands for a broken build
        raise CannotInstall(str(problem)) from problem


def _has(candidate: TorchVersion, wanted: Version) -> bool:
    own = Version(candidate.version)
    return wanted in (own, Version(own.public))


def _end(end: str, word: str, have: Sequence[TorchVersion], is_buildable: bool) -> TorchVersion:
    """The candidate that ``--good`` or ``--bad`` names."""
    if os.sep in end:
        return next(c for c in have if c.python == end)
    wanted = version_of(end)
    found = [c for c in have if _has(c, wanted)]
    if len(found) > 1:
        raise BadInput(
            f"{word} {end}: {' and '.join(c.python for c in found)} have it; name one of these"
            " paths"
        )
    if not found and not is_buildable:
        told = ", ".join(c.version for c in have) or "none that runs"
        raise BadInput(
            f"{word} {end}: no --interpreter has it, they have {told}; with --versions {end} it is"
            " built"
        )
    return found[0] if found else TorchVersion(str(wanted))
