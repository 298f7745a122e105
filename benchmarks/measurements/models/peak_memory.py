"""Measure how close a computed peak of the memory comes to that of a run on the CPU.

python -m benchmarks run peak_memory [--only MODEL ...]

Each model is compiled twice: with fake weights, where the peak is computed from the lifetimes of
fake tensors and from the buffers in the generated code, and with real ones, where torch's allocator
reports it. ``ratio`` divides the two peaks above the parameters and inputs, which are the same;
``ratio_total`` has them. ``calls`` compares each call of a compiled graph by itself, with the
arguments of the real run.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.memory.program_memory import call_peaks
from reprokit.core.records.memory_use import MemoryUse
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_target
from reprokit.host.run import run_directory, supervise
from reprokit.host.run.memory_reader import read_memory, read_modules, read_record
from reprokit.host.system import compiler_cache

from ...harness import MeasurementFailed
from ...measurement import Measurement, add_only_option
from ...results import Column, Row

LIMIT = 0.05
"""The goal: a ratio within 5 %."""


@dataclass(frozen=True)
class SmallModel:
    """A model that fits into a laptop."""

    target: str
    train: bool = False
    knobs: dict[str, Any] = field(default_factory=dict)


def _decoder(name: str, train: bool = False, **more: Any) -> SmallModel:
    small = {"layers": 2, "hidden_size": 256, "intermediate_size": 704, "vocab_size": 2048}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"batch_size": 2, "sequence_length": 128}
    return SmallModel(name, train, {**small, **heads, **sizes, **more})


def _of(name: str, train: bool = False, **knobs: Any) -> SmallModel:
    return SmallModel(name, train, {"layers": 2, "batch_size": 2, **knobs})


MODELS = {
    "llama-tiny": SmallModel("llama-tiny"),
    "llama-tiny, train": SmallModel("llama-tiny", True, {"batch_size": 8, "sequence_length": 256}),
    "convnet": SmallModel("convnet"),
    "convnet, train": SmallModel("convnet", True),
    "llama-decode": SmallModel("llama-decode"),
    "hf:llama": _decoder("hf:llama"),
    "hf:llama, train": _decoder("hf:llama", True),
    "hf:mistral": _decoder("hf:mistral"),
    "hf:qwen2, train": _decoder("hf:qwen2", True),
    "hf:qwen3": _decoder("hf:qwen3"),
    "hf:gemma, train": _decoder("hf:gemma", True, head_dim=64),
    "hf:phi3": _decoder("hf:phi3", pad_token_id=0),
    "hf:gpt2, train": _of("hf:gpt2", True, sequence_length=128),
    "hf:opt": _of("hf:opt", sequence_length=128),
    "hf:bert": _of("hf:bert", sequence_length=128),
    "hf:bert, train": _of("hf:bert", True, sequence_length=128),
    "hf:roberta, train": _of("hf:roberta", True, sequence_length=128),
    "hf:distilbert": _of("hf:distilbert", sequence_length=128),
    "hf:vit, train": _of("hf:vit", True),
    "hf:t5": _of("hf:t5", sequence_length=64),
}
COLUMNS = (
    Column("model", "model"),
    Column("held_mb", "parameters and inputs, MB", 1),
    Column("computed_mb", "computed peak above them, MB", 2),
    Column("measured_mb", "measured, MB", 2),
    Column("ratio", "ratio", 3),
    Column("ratio_total", "ratio of the whole peaks", 3),
    Column("calls", "calls within 5 %"),
)


def measure_model(name: str, model: SmallModel) -> Row:
    """Return the row of a model."""
    with tempfile.TemporaryDirectory() as folder:
        uses: dict[str, MemoryUse] = {}
        for weights in ("real", "fake"):
            path = Path(folder, weights)
            run_directory.make_folders(path)
            cache = path / "warm"
            kept = compiler_cache.kept_cache_folder(Request.python)
            compiler_cache.copy_cache(kept, cache)
            request = Request(
                parse_target(model.target),
                knobs=dict(model.knobs),
                train=model.train,
                weights=weights,
                compares=False,
                compares_memory=True,
                has_trace=False,
                variables={"TORCHINDUCTOR_CACHE_DIR": str(compiler_cache.plain_path(cache))},
            )
            outcome = supervise.run_target_once(request, path)
            compiler_cache.keep_cache(cache, kept)
            use = read_memory(path)
            if use is None:
                lines = (path / "logs" / "stderr.txt").read_text().strip().splitlines()[-1:]
                raise MeasurementFailed(f"{name}, {weights}: {outcome.exit_status}, {lines}")
            uses[weights] = use
        record = read_record(Path(folder, "real"))
        assert record is not None
        peaks = call_peaks(record, read_modules(Path(folder, "real"), record))
    real, fake = uses["real"], uses["fake"]
    computed, measured = fake.peak[1].peak_bytes, real.peak[1].peak_bytes
    held = real.held_bytes
    near = sum(abs(a - b) <= LIMIT * max(b, 1) for a, b in peaks)
    return {
        "model": name,
        "held_mb": round(held / 1e6, 1),
        "computed_mb": round((computed - fake.held_bytes) / 1e6, 2),
        "measured_mb": round((measured - held) / 1e6, 2),
        "ratio": round((computed - fake.held_bytes) / max(measured - held, 1), 3),
        "ratio_total": round(computed / measured, 3),
        "calls": f"{near} of {len(peaks)}",
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of models."""
    add_only_option(parser, MODELS, "model")


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each model."""
    for name in options.only:
        yield measure_model(name, MODELS[name])


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return how many models are within the limit."""
    near = [row for row in rows if abs(float(str(row["ratio"])) - 1) <= LIMIT]
    return [f"Within 5 %: {len(near)} of {len(rows)} models."]


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
