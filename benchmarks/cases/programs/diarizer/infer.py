import argparse
import logging

import torch

from diar import MODELS, load_config

log = logging.getLogger("infer")


def segments(count, cfg, seed):
    gen = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield torch.rand(4, cfg.frames, cfg.n_mels, generator=gen) * 3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="configs/small.json")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--segments", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")

    torch.manual_seed(args.seed)
    cfg = load_config(args.config, args.set)
    model = MODELS[cfg.model.type](cfg.model, cfg.speakers).eval()
    log.info("%s with %.1fk parameters", cfg.model.type, sum(p.numel() for p in model.parameters()) / 1e3)
    model = torch.compile(model)
    total = torch.zeros(cfg.speakers)
    with torch.inference_mode():
        for mel in segments(args.segments, cfg.model, args.seed):
            active = torch.sigmoid(model(mel)) > 0.5
            total += active.float().mean((0, 1))
    for i, share in enumerate(total / args.segments):
        log.info("speaker %d active in %.0f%% of the frames", i, 100 * share)


if __name__ == "__main__":
    main()
