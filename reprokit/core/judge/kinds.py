"""The kinds of verdicts."""

from __future__ import annotations

KINDS = (
    "ok",
    "exception",
    "crash",
    "hang",
    "oom",
    "wrong-result",
    "recompile-limit",
    "recompile-storm",
    "graph-break",
    "cudagraph-skip",
    "rank-mismatch",
    "slow-compile",
    "superlinear-compile",
    "error-in-eager",
    "unknown",
)
