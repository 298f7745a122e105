"""Scores random pictures with a windowed einops model."""
import argparse
import json
import os

import torch

from windows import WindowNet


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser()
    p.add_argument("--config", default=os.path.join(here, "config.json"))
    p.add_argument("--checkpoint")
    p.add_argument("--count", type=int, default=4)
    p.add_argument("--mode", default="default")
    args = p.parse_args()

    torch.manual_seed(0)
    with open(args.config) as f:
        model = WindowNet(**json.load(f)).eval()
    if args.checkpoint:
        model.load_state_dict(torch.load(args.checkpoint, weights_only=True))
    compiled = torch.compile(model, mode=args.mode)
    with torch.inference_mode():
        for i in range(0, args.count, 2):
            x = torch.rand(2, 3, 32, 32)
            scores = compiled(x).softmax(-1)
            for row in scores:
                print(f"class {row.argmax().item()} p={row.max().item():.3f}")


if __name__ == "__main__":
    main()
