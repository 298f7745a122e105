"""The models that ``--model NAME`` knows: their dimensions as data, so that the host can list them
without torch.

The networks themselves are built by ``agent/models``; one file each, flat, nothing but torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ZooModel:
    """One entry: which file builds it and the keyword arguments of its ``make``."""

    name: str
    source: str
    """Module of ``agent/models``."""
    about: str
    knobs: dict[str, Any]
    """Defaults; ``batch_size``, ``sequence_length`` (tokens), ``layers``, ``dtype`` may be set from
    the command line.
    """

    @property
    def can_train(self) -> bool:
        """Decoding writes into its cache, which autograd cannot follow."""
        return self.source != "decode"

    @property
    def parameters(self) -> int:
        """How many parameters the network has with its default knobs."""
        return count_parameters(self, self.knobs)


def _model(name: str, about: str, source: str = "llama", **knobs: Any) -> ZooModel:
    return ZooModel(name, source, about, knobs)


ZOO: dict[str, ZooModel] = {
    model.name: model
    for model in (
        _model(
            "llama-tiny",
            "Llama-style, small enough for real weights on a laptop",
            layers=2,
            hidden=64,
            heads=4,
            kv_heads=2,
            intermediate=176,
            vocab=256,
            batch_size=2,
            sequence_length=32,
            dtype="float32",
        ),
        _model(
            "llama8b",
            "Llama-style: 32 layers, hidden 4096",
            layers=32,
            hidden=4096,
            heads=32,
            kv_heads=8,
            intermediate=14336,
            vocab=128256,
            batch_size=1,
            sequence_length=8192,
            dtype="bfloat16",
        ),
        _model(
            "llama40b",
            "Llama-style: 48 layers, hidden 8192",
            layers=48,
            hidden=8192,
            heads=64,
            kv_heads=8,
            intermediate=28672,
            vocab=32000,
            batch_size=4,
            sequence_length=8192,
            dtype="bfloat16",
        ),
        _model(
            "llama70b",
            "Llama-style: 80 layers, hidden 8192",
            layers=80,
            hidden=8192,
            heads=64,
            kv_heads=8,
            intermediate=28672,
            vocab=128256,
            batch_size=4,
            sequence_length=8192,
            dtype="bfloat16",
        ),
        ZooModel(
            "convnet",
            "convnet",
            "residual convolutional network, 3 stages, batch norm, 64 x 64 images",
            {
                "layers": 6,
                "channels": 32,
                "image": 64,
                "classes": 10,
                "batch_size": 4,
                "dtype": "float32",
            },
        ),
        _model(
            "llama-decode",
            "prefill, then token by token with a static KV cache that is mutated in place",
            "decode",
            layers=2,
            hidden=64,
            heads=4,
            kv_heads=2,
            intermediate=176,
            vocab=256,
            batch_size=2,
            sequence_length=32,
            steps=4,
            dtype="float32",
        ),
    )
}


def count_parameters(model: ZooModel, knobs: dict[str, Any]) -> int:
    """Parameters of ``model`` with ``knobs``, by arithmetic; equals what the built network
    holds.
    """
    k = knobs
    if model.source == "convnet":
        width, count = k["channels"], 0
        count += 3 * 9 * width + 2 * width
        for block in range(k["layers"]):
            out = width * 2 if block and block % 2 == 0 and width < 8 * k["channels"] else width
            count += 9 * width * out + 2 * out + 9 * out * out + 2 * out
            count += width * out if out != width else 0
            width = out
        return int(count + width * k["classes"] + k["classes"])
    head = k["hidden"] // k["heads"]
    attention = 2 * k["hidden"] * k["heads"] * head + 2 * k["hidden"] * k["kv_heads"] * head
    block = attention + 3 * k["hidden"] * k["intermediate"] + 2 * k["hidden"]
    return int(k["layers"] * block + 2 * k["vocab"] * k["hidden"] + k["hidden"])


DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def needed_bytes(model: ZooModel, knobs: dict[str, Any], is_train: bool) -> int:
    """A low estimate of the bytes that real weights and activations take; gradients count when
    training.
    """
    size = DTYPE_BYTES[knobs["dtype"]]
    weights = count_parameters(model, knobs) * size * (2 if is_train else 1)
    if model.source == "convnet":
        return weights
    tokens = knobs["batch_size"] * knobs["sequence_length"]
    layer = tokens * (6 * knobs["hidden"] + 3 * knobs["intermediate"]) * size
    logits = tokens * knobs["vocab"] * size
    return int(weights + layer * (knobs["layers"] if is_train else 1) + logits)
