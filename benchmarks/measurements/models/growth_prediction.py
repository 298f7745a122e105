"""Measure how close ``reprokit scale`` predicts the cost of a large compile from small ones.

python -m benchmarks run growth_prediction [--only TARGET ...] [--repeats 2]

Each target is one call of ``reprokit scale`` over the probes and the full size; the laws are then
fitted to the probes alone. Costs are CPU seconds of the compile. The full size is four times the
largest probe. The chain grows exponentially and would take too long at four times, so it is compared
at 1.1 and 1.5 times its largest probe.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from reprokit.core.growth import costs

from ...harness import ROOT, MeasurementFailed, run_reprokit
from ...measurement import Measurement, add_only_option, positive_int
from ...results import Column, Row

CHAIN = f"{ROOT / 'samples' / 'superlinear_compile.py'}:make"


@dataclass(frozen=True)
class ScaleTarget:
    """A target, its knob, the sizes of the probes and the full size."""

    words: tuple[str, ...]
    knob: str
    probes: tuple[int, ...]
    full_size: int


TARGETS = {
    "llama-tiny": ScaleTarget(("--model", "llama-tiny"), "layers", (1, 2, 4, 8), 32),
    "convnet": ScaleTarget(("--model", "convnet"), "layers", (1, 2, 4, 8), 32),
    "llama40b, fake weights": ScaleTarget(
        ("--model", "llama40b", "--weights", "fake"), "layers", (1, 2, 4), 16
    ),
    "chain": ScaleTarget((CHAIN,), "n", (4, 5, 6, 7, 8), 12),
    "chain, steep": ScaleTarget((CHAIN,), "n", (6, 8, 10, 11), 12),
}
COLUMNS = (
    Column("target", "target"),
    Column("probes", "probes"),
    Column("full_size", "full size"),
    Column("predicted_cpu_s", "predicted CPU s"),
    Column("measured_cpu_s", "measured CPU s", 1),
    Column("ratio", "predicted / measured", 2),
    Column("predicted_mb", "predicted MB"),
    Column("measured_mb", "measured MB", 0),
    Column("law", "law"),
)


def phase_costs(target: ScaleTarget, repeats: int) -> list[costs.PhaseCost]:
    """Return the costs of the probes and of the full size, from one call of the command."""
    sizes = ",".join(map(str, (*target.probes, target.full_size)))
    with tempfile.TemporaryDirectory() as folder:
        done = run_reprokit(
            "scale",
            *target.words,
            "--set",
            f"{target.knob}={sizes}",
            "--repeats",
            str(repeats),
            "--output-dir",
            folder,
            cwd=ROOT,
        )
    if not done.answer.get("growth"):
        raise MeasurementFailed(f"reprokit scale failed: {done.last_error}")
    return [
        costs.PhaseCost(**{key: value for key, value in size.items() if key != "cpu_s_per_node"})
        for size in done.answer["growth"]["sizes"]
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of targets and the number of runs of each size."""
    add_only_option(parser, TARGETS, "target")
    parser.add_argument(
        "--repeats", type=positive_int, default=2, help="runs of each size; default: 2"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each target."""
    for name in options.only:
        target = TARGETS[name]
        *probes, full = phase_costs(target, options.repeats)
        growth = costs.summarise_growth(probes, target.knob, target.full_size)
        total, worst = growth["total"], growth["worst"]
        yield {
            "target": name,
            "probes": f"{target.knob} {', '.join(map(str, target.probes))}",
            "full_size": target.full_size,
            "predicted_cpu_s": costs.amount_in_words(total, "s"),
            "measured_cpu_s": round(full.cpu_s, 1),
            "ratio": round(total["predicted"] / full.cpu_s, 2),
            "predicted_mb": costs.amount_in_words(growth["memory"], "MB"),
            "measured_mb": round(full.peak_rss_bytes / 1e6),
            "law": f"{total['words']}; worst {worst['phase']}, {worst['words']}",
        }


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
