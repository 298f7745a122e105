from dataclasses import dataclass, fields
import json


@dataclass
class Config:
    model: str = "vit_tiny_patch16_224"
    num_classes: int = 5
    img_size: int = 32
    patch_size: int = 8
    embed_dim: int = 32
    depth: int = 2
    num_heads: int = 2
    batch_size: int = 4
    steps: int = 14
    lr: float = 1e-3
    weight_decay: float = 0.05
    layer_decay: float = 0.75
    drop_path_max: float = 0.2
    smoothing: float = 0.1
    seed: int = 0

    @classmethod
    def load(cls, path):
        with open(path) as f:
            raw = json.load(f)
        known = {f.name for f in fields(cls)}
        unknown = set(raw) - known
        if unknown:
            raise ValueError(f"unknown settings: {sorted(unknown)}")
        return cls(**raw)
