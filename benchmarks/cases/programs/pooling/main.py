import argparse
import random

import torch
from textnet import HashTokenizer, SentenceEncoder

GOOD = "great lovely warm fun bright happy".split()
BAD = "dull awful cold boring sad noisy".split()
FILL = "the film was a bit and so very it".split()


def corpus(n, rng):
    for _ in range(n):
        label = rng.random() < 0.5
        words = rng.choices(FILL, k=rng.randint(3, 8)) + rng.choices(GOOD if label else BAD, k=2)
        rng.shuffle(words)
        yield " ".join(words), int(label)


def run(args):
    rng = random.Random(args.seed)
    torch.manual_seed(args.seed)
    tok = HashTokenizer(64, 12)
    model = SentenceEncoder(64, depth=args.depth)
    net = torch.compile(model, fullgraph=True, dynamic=False)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(args.steps):
        texts, labels = zip(*corpus(16, rng))
        ids, lengths = tok(texts)
        loss = torch.nn.functional.cross_entropy(net(ids, lengths), torch.tensor(labels))
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"{step:3d} {loss.item():.4f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--depth", type=int, default=2)
    p.add_argument("--seed", type=int, default=0)
    run(p.parse_args())
