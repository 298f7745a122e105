"""Tag short 16 bit recordings with a small trained classifier."""

import argparse
import json
import logging
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

log = logging.getLogger("tagger")
FEATURES = {}


def feature(name):
    def register(function):
        FEATURES[name] = function
        return function

    return register


@feature("energy")
def energy(frames, window):
    return ((frames.float() / 32768 * window) ** 2).mean(-1).clamp_min(1e-8).log()


@feature("crossings")
def crossings(frames, window):
    signs = frames >= 0
    return (signs[..., 1:] != signs[..., :-1]).float().mean(-1)


@feature("envelope")
def envelope(frames, window):
    level = frames.abs().float() / 32768
    return (level * window).sum(-1) / window.sum()


@feature("slope")
def slope(frames, window):
    values = frames.float() / 32768
    return (values[..., 1:] - values[..., :-1]).square().mean(-1).sqrt()


@dataclass
class Settings:
    frame: int = 200
    hop: int = 100
    features: list = field(default_factory=lambda: ["energy", "crossings", "envelope", "slope"])
    width: int = 24


class FrontEnd(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.settings = settings
        self.register_buffer("window", torch.hann_window(settings.frame))

    def forward(self, pcm):
        frames = pcm.unfold(-1, self.settings.frame, self.settings.hop)
        columns = [FEATURES[name](frames, self.window) for name in self.settings.features]
        return torch.stack(columns, dim=-1)


class Tagger(nn.Module):
    def __init__(self, settings, classes):
        super().__init__()
        self.front = FrontEnd(settings)
        self.body = nn.Sequential(
            nn.Linear(len(settings.features), settings.width),
            nn.GELU(),
            nn.LayerNorm(settings.width),
            nn.Linear(settings.width, classes),
        )

    def forward(self, pcm):
        features = self.front(pcm)
        scores = self.body(features).mean(dim=1)
        return scores.softmax(-1), features.mean(dim=1)


class Clips:
    def __init__(self, manifest):
        with open(manifest) as file:
            content = json.load(file)
        self.classes = content["classes"]
        self.entries = content["clips"]

    def batches(self, size):
        for start in range(0, len(self.entries), size):
            part = self.entries[start : start + size]
            pcm = torch.stack([torch.from_numpy(np.load(entry["file"])) for entry in part])
            yield [entry["file"] for entry in part], pcm


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--manifest", default="manifest.json")
    parser.add_argument("--checkpoint", default="tagger.pt")
    parser.add_argument("--batch", type=int, default=4)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")

    clips = Clips(args.manifest)
    model = Tagger(Settings(), len(clips.classes))
    checkpoint = torch.load(args.checkpoint, weights_only=True)
    model.load_state_dict(checkpoint["state"])
    log.info("checkpoint of epoch %d", checkpoint["epoch"])
    model = torch.compile(model.eval())

    begin = time.perf_counter()
    rows = []
    with torch.inference_mode():
        for names, pcm in clips.batches(args.batch):
            scores, means = model(pcm)
            for name, score, mean in zip(names, scores, means):
                rows.append((name, clips.classes[score.argmax()], score.max().item(), mean[2].item()))
    log.info("%d clips in %.1f s", len(rows), time.perf_counter() - begin)
    for name, label, score, level in rows:
        print(f"{name} {label:8s} {score:.4f} level {level:+.4f}")


if __name__ == "__main__":
    main()
