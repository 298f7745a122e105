"""Compute speaker embeddings from the voiced frames of utterances and compare them."""

import argparse
import csv
import functools
import itertools
import logging

import numpy as np
import torch
import torch._dynamo
from torch import nn
import torch.nn.functional as F

log = logging.getLogger("speakers")
torch._dynamo.config.capture_dynamic_output_shape_ops = True


class Projection(nn.Module):
    def __init__(self, inputs, width, activation=F.gelu):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.second = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.activation = activation

    def forward(self, frames):
        hidden = self.activation(self.first(frames))
        return self.norm(hidden + self.second(hidden))


class VoiceActivity(nn.Module):
    """Keep the frames whose energy is above the threshold."""

    def __init__(self, threshold, column=0):
        super().__init__()
        self.threshold = threshold
        self.column = column

    def forward(self, frames):
        voiced = frames[:, self.column] > self.threshold
        return frames[voiced], voiced.float().mean()


class Context(nn.Module):
    """Average every frame with its neighbours."""

    def __init__(self, reach):
        super().__init__()
        self.reach = reach

    @property
    def size(self):
        return 2 * self.reach + 1

    def forward(self, frames):
        padded = F.pad(frames.t(), (self.reach, self.reach))
        return padded.unfold(1, self.size, 1).mean(-1).t()


class StatisticsPool(nn.Module):
    def __init__(self, width, outputs):
        super().__init__()
        self.out = nn.Linear(2 * width, outputs)

    def forward(self, frames):
        mean = frames.mean(0)
        spread = (frames - mean).square().mean(0).add(1e-5).sqrt()
        return F.normalize(self.out(torch.cat([mean, spread])), dim=0)


class Embedder(nn.Module):
    def __init__(self, inputs, width, outputs, threshold, reach):
        super().__init__()
        self.activity = VoiceActivity(threshold)
        self.context = Context(reach)
        self.project = Projection(inputs, width, functools.partial(F.gelu, approximate="tanh"))
        self.pool = StatisticsPool(width, outputs)

    def forward(self, frames):
        voiced, share = self.activity(frames)
        return self.pool(self.project(self.context(voiced))), share


def utterances(index):
    with open(index, newline="") as file:
        for row in csv.DictReader(file):
            yield row["path"], int(row["speaker"]), torch.from_numpy(np.load(row["path"]))


def compare(embeddings):
    for (a, (speaker_a, x)), (b, (speaker_b, y)) in itertools.combinations(embeddings.items(), 2):
        yield a, b, speaker_a == speaker_b, torch.dot(x, y).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--index", default="index.csv")
    parser.add_argument("--threshold", type=float, default=0.0)
    parser.add_argument("--reach", type=int, default=2)
    parser.add_argument("--width", type=int, default=32)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(0)

    model = Embedder(10, args.width, 8, args.threshold, args.reach).eval()
    embed = torch.compile(model, dynamic=True)
    embeddings = {}
    with torch.no_grad():
        for path, speaker, frames in utterances(args.index):
            vector, share = embed(frames)
            log.info("%s: %d frames, %.0f%% voiced", path, len(frames), 100 * share.item())
            embeddings[path] = speaker, vector
    scores = list(compare(embeddings))
    same = [score for *_, equal, score in scores if equal]
    other = [score for *_, equal, score in scores if not equal]
    print(f"same {sum(same) / len(same):.4f} other {sum(other) / len(other):.4f}")


if __name__ == "__main__":
    main()
