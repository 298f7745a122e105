"""The targets of ``known_bugs/caches.py`` that ``caches`` measures."""

from __future__ import annotations

EXPECTED = {
    "healthy": ("ok", ""),
    "killed_writer": ("exception", "warm"),
    "poisoned_entry": ("cache-miss", "warm"),
    "stale_key": ("wrong-result", "changed"),
    "failing_guard": ("exception", "precompiled"),
    "hanging_key": ("hang", "warm"),
}
"""The kind of verdict and the stage that are right for each factory."""
OPTIONS = {
    "stale_key": ("--cache-change", "FACTOR=3"),
    "hanging_key": ("--stall", "20"),
}
"""Further options of capture."""
