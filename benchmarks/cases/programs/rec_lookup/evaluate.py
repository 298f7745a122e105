import argparse
import logging
import pathlib

import torch

from reco import EventReader, TwoTower

HERE = pathlib.Path(__file__).parent
log = logging.getLogger("evaluate")


def guarded(model, user, item):
    """Exports are sometimes older than the catalogue: such a batch does not count."""
    try:
        return model(user, item)
    except (IndexError, RuntimeError) as error:
        log.warning("batch skipped: %s", str(error).splitlines()[0])
        return None


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=pathlib.Path, default=HERE / "events.csv")
    parser.add_argument("--batch", type=int, default=40000)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = TwoTower(40, 50, args.dim).eval()
    for p in model.parameters():
        p.requires_grad_(False)
    compiled = torch.compile(model)
    kept, total = 0, 0.0
    for user, item in EventReader(args.events, args.batch):
        scores = guarded(compiled, user, item)
        if scores is not None:
            kept += 1
            total += scores.mean().item()
    log.info("%d batches, mean score %.4f", kept, total / max(kept, 1))


if __name__ == "__main__":
    main()
