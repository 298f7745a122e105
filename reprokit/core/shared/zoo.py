"""The models that ``--model NAME`` accepts: their dimensions as data, so that the host can list
them without torch.

``agent/models`` builds the networks. Each is one file that imports only torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ZooModel:
    """One model: the module that builds it, and the keyword arguments of its ``make``."""

    name: str
    source: str
    """The module of ``agent/models``."""
    about: str
    knobs: dict[str, Any]
    """The defaults. ``batch_size``, ``sequence_length`` (tokens), ``layers`` and ``dtype`` have
    options on the command line.
    """

    @property
    def can_train(self) -> bool:
        """Whether it can be trained: decoding writes into its cache, which autograd does not
        support.
        """
        return self.source != "decode"

    @property
    def parameters(self) -> int:
        """The number of parameters of the network with its default knobs."""
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


def _llama_parameters(k: Mapping[str, Any]) -> int:
    head = k["hidden"] // k["heads"]
    attention = 2 * k["hidden"] * k["heads"] * head + 2 * k["hidden"] * k["kv_heads"] * head
    block = attention + 3 * k["hidden"] * k["intermediate"] + 2 * k["hidden"]
    return int(k["layers"] * block + 2 * k["vocab"] * k["hidden"] + k["hidden"])


def _llama_activations(k: Mapping[str, Any], is_train: bool) -> int:
    tokens = k["batch_size"] * k["sequence_length"]
    layer = tokens * (6 * k["hidden"] + 3 * k["intermediate"])
    return int(layer * (k["layers"] if is_train else 1) + tokens * k["vocab"])


def _convnet_parameters(k: Mapping[str, Any]) -> int:
    width = k["channels"]
    count = 3 * 9 * width + 2 * width
    for block in range(k["layers"]):
        out = width * 2 if block and block % 2 == 0 and width < 8 * k["channels"] else width
        count += 9 * width * out + 2 * out + 9 * out * out + 2 * out
        count += width * out if out != width else 0
        width = out
    return int(count + width * k["classes"] + k["classes"])


@dataclass(frozen=True)
class Network:
    """One file of ``agent/models``: how large its network is, by arithmetic."""

    parameters: Callable[[Mapping[str, Any]], int]
    """The number of parameters of the built network with these knobs."""
    activations: Callable[[Mapping[str, Any], bool], int] = lambda knobs, is_train: 0
    """A low estimate of the activations, as a number of elements."""


NETWORKS = {
    "llama": Network(_llama_parameters, _llama_activations),
    "decode": Network(_llama_parameters, _llama_activations),
    "convnet": Network(_convnet_parameters),
}
"""By module of ``agent/models``."""


def count_parameters(model: ZooModel, knobs: Mapping[str, Any]) -> int:
    """Return the number of parameters of ``model`` with ``knobs``, by arithmetic."""
    return NETWORKS[model.source].parameters(knobs)


DTYPE_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}


def needed_bytes(model: ZooModel, knobs: Mapping[str, Any], is_train: bool) -> int:
    """Return a low estimate of the bytes of real weights, activations and, in training,
    gradients.
    """
    weights = count_parameters(model, knobs) * (2 if is_train else 1)
    activations = NETWORKS[model.source].activations(knobs, is_train)
    return (weights + activations) * DTYPE_BYTES[knobs["dtype"]]
