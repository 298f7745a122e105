import json
from dataclasses import dataclass, field


@dataclass
class ModelConfig:
    type: str = "segment_net"
    n_mels: int = 20
    width: int = 24
    frames: int = 12
    pattern: str = "AA"
    heads: int = 3


@dataclass
class Config:
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: dict = field(default_factory=lambda: {"lr": 1e-3})
    speakers: int = 2


def load_config(path, overrides=()):
    with open(path) as f:
        raw = json.load(f)
    for item in overrides:
        key, _, value = item.partition("=")
        node = raw
        *parents, last = key.split(".")
        for p in parents:
            node = node[p]
        node[last] = json.loads(value)
    return Config(model=ModelConfig(**raw["model"]), optim=raw["optim"], speakers=raw["speakers"])
