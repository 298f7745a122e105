"""The stages of a comparison of caches."""

from __future__ import annotations

from dataclasses import dataclass, field

COLD, WARM, LOADED, CHANGED, OWN = "cold", "warm", "loaded", "changed", "own"
PRECOMPILED = "precompiled"
STAGE_WORDS = {
    COLD: "with an empty cache",
    OWN: "with a copy of the cache folder of the environment",
    WARM: "in a second process, with the cache of the first",
    LOADED: "in a second process, with the saved artifacts of the first",
    CHANGED: "in a second process, with the cache of the first and a changed setting",
    PRECOMPILED: "in a second process, with the cache of one with TORCH_CACHING_PRECOMPILE=1",
}
"""Each stage in words, in the order in which they run."""


@dataclass(frozen=True)
class DamagedFile:
    """A file of a cache that is not as the compiler wrote it."""

    name: str
    """Its path below the cache folder."""
    what: str
    """What is wrong, as a clause."""
    size_bytes: int = 0
    """Its size: a repro gives its own files of this kind the same size."""

    @property
    def pattern(self) -> str:
        """A glob pattern for files of this kind below a cache folder."""
        for folder in ("fxgraph", "aotautograd"):
            if self.name.startswith(f"{folder}/"):
                return f"{folder}/**/*"
        return f"*.{self.name.split('.', 1)[1]}" if "." in self.name else "*"


@dataclass(frozen=True)
class CacheStage:
    """One stage that ran."""

    name: str
    """A key of ``STAGE_WORDS``."""
    ended: str
    """The kind of its verdict."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    uses: dict[str, int] = field(default_factory=dict)
    """How many look-ups and writes of each cache there were, such as ``{"fx-graph hit": 2}``."""
    settings: tuple[str, ...] = ()
    """The changed settings, ``NAME=VALUE``."""
    damaged: tuple[DamagedFile, ...] = ()
    """Damaged files that were in the cache before the stage."""

    @property
    def sentence(self) -> str:
        """What the stage did, how it ended, and what it cost."""
        what = STAGE_WORDS.get(self.name, "")
        changed = f" ({', '.join(self.settings)})" if self.settings else ""
        counts = ", ".join(f"{count} {name}" for name, count in self.uses.items())
        found = f"; {counts}" if counts else ""
        return f"stage {self.name}, {what}{changed}: {self.ended} in {self.seconds:.1f} s{found}"
