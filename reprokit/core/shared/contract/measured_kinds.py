"""The kinds of verdicts whose programs are measured after their end: values of
``run_names.MEASURES_VARIABLE``.
"""

from __future__ import annotations

PEAK_MEMORY, MEMORY_GROWTH, SLOWER = "peak-memory", "memory-growth", "slower"
KINDS = (PEAK_MEMORY, MEMORY_GROWTH, SLOWER)
