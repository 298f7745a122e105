"""The failures of ``known_bugs/silent.py`` that ``silent_failures`` measures."""

from __future__ import annotations

EXPECTED_KINDS = {
    "acosh_large": "wrong-result",
    "hessian_trace": "wrong-result",
    "shift_clone": "wrong-result",
    "dtype_view": "wrong-result",
    "copy_then_mutate": "wrong-result",
    "gelu_inf": "ok",
    "shift_buried": "wrong-result",
    "copy_buried": "wrong-result",
    "processor_identity": "recompile-limit",
    "counter": "recompile-limit",
    "local_class": "graph-break",
    "early_exit": "graph-break",
}
"""The kind of verdict that is right for each factory."""
OPTIONS = {"local_class": ("--fail-on", "graph-break")}
"""Further options of capture: this graph break leaves graphs on both sides of it, so that it is a
failure only where the limit is 0.
"""
