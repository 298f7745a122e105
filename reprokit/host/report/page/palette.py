"""The colours of phases, packages and kinds on pages, as classes of a style sheet.

Red is the colour of what failed and of nothing else, so no other row has it. Text on each colour
has a contrast of at least 4.5.
"""

from __future__ import annotations

from reprokit.core.judge.stacks.phases import TRITON_STAGES
from reprokit.core.records.verdict_kinds import kind_named

OTHER = "other"
PHASE_COLOURS = {
    "import": ("#e1e5ea", "#3b434d"),
    "build": ("#d9dee4", "#434c57"),
    "eager": ("#d0d7de", "#4a5460"),
    "run": ("#c8d0d9", "#505b68"),
    "dynamo-trace": ("#9cc4f5", "#1f4a7d"),
    "guards": ("#c5dcfa", "#2f5a8f"),
    "export": ("#f2d0b0", "#664622"),
    "backend": ("#cbcedb", "#464c60"),
    "aot": ("#f3cf8a", "#6b4b0f"),
    "partition": ("#f7e3b5", "#59461a"),
    "fx-passes": ("#a6dba0", "#275d2f"),
    "lowering": ("#d9d788", "#575515"),
    "scheduler": ("#8fd6c9", "#15574e"),
    "codegen": ("#b9e6de", "#255650"),
    "cpp-build": ("#cbb8f0", "#4b3882"),
    "triton-compile": ("#e2b8ec", "#662d74"),
    **dict.fromkeys(TRITON_STAGES, ("#eed6f4", "#5a3a64")),
    "worker-wait": ("#cdc4bb", "#4f4842"),
    "cache-load": ("#e3d5c8", "#574636"),
    "kernel-run": ("#8fd3ee", "#155a75"),
    "collective": ("#bcd0a5", "#40551f"),
    OTHER: ("#e6e8eb", "#333a43"),
}
"""Phase -> its colour on a light and on a dark page."""
PACKAGES = (
    ("torch/_dynamo/", "Dynamo", PHASE_COLOURS["dynamo-trace"]),
    ("torch/_functorch/", "AOTAutograd", PHASE_COLOURS["aot"]),
    ("torch/_inductor/", "Inductor", PHASE_COLOURS["scheduler"]),
    ("torch/", "the rest of torch", PHASE_COLOURS["fx-passes"]),
    ("triton/", "Triton", PHASE_COLOURS["triton-compile"]),
    ("<user>", "your code", PHASE_COLOURS["lowering"]),
    ("<generated>", "generated code", PHASE_COLOURS["kernel-run"]),
    ("<agent>", "reprokit", PHASE_COLOURS["import"]),
    ("<", "Python", PHASE_COLOURS["run"]),
    ("", "other packages", PHASE_COLOURS["worker-wait"]),
)
"""How a normalised file begins, its package in words, and the colours; the first match counts."""
PROCESS = "process"
LINE_COLOURS = (
    ("#1f2328", "#e6edf3"),
    ("#0969da", "#58a6ff"),
    ("#9a6700", "#d29922"),
    ("#1a7f37", "#3fb950"),
    ("#8250df", "#a371f7"),
    ("#0f766e", "#39c5bb"),
    ("#6e4c30", "#c69f7f"),
)
"""Colours of the lines of a figure, by their number."""


def phase_class(phase: str) -> str:
    """Return the class of a phase; a phase that is not known has the class of other phases."""
    return f"phase-{phase if phase in PHASE_COLOURS else OTHER}"


def package_number(place: str) -> int:
    """Return the row of :data:`PACKAGES` for the normalised ``FILE:LINE`` of a frame."""
    return next(i for i, (prefix, _, _) in enumerate(PACKAGES) if place.startswith(prefix))


def colour_styles() -> str:
    """Return the style sheet with a class for each colour, for light and for dark pages."""
    fills = {f".phase-{name}": pair for name, pair in PHASE_COLOURS.items()}
    fills |= {f".package-{i}": pair for i, (_, _, pair) in enumerate(PACKAGES)}
    lines = {f".line-{i}": pair for i, pair in enumerate(LINE_COLOURS)}
    parts = []
    for shade in (0, 1):
        rules = [f"{name}{{--fill:{pair[shade]}}}" for name, pair in fills.items()]
        rules += [f"{name}{{--line:{pair[shade]}}}" for name, pair in lines.items()]
        parts.append("".join(rules))
    return f"{parts[0]}\n@media (prefers-color-scheme: dark){{{parts[1]}}}\n"


def is_alarm(kind: str) -> bool:
    """Return whether a kind of verdict has the colour of what failed."""
    return kind_named(kind).is_failure
