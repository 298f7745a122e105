"""Score synthetic customers: python score.py [--config run.json] [--passes sort_operands,dce]"""
import argparse
import json
import logging
import os

import torch

from tabnet import ResidualTabular, install


def read_config(path):
    config = {"columns": 7, "width": 16, "depth": 4, "rows": 64, "batch": 32}
    if path and os.path.exists(path):
        with open(path) as f:
            config.update(json.load(f))
    return config


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--config")
    ap.add_argument("--passes", default="sort_operands,dce")
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname).1s %(name)s: %(message)s")
    cfg = read_config(args.config)
    install([p for p in args.passes.split(",") if p])

    torch.manual_seed(5)
    model = ResidualTabular(cfg["columns"], cfg["width"], cfg["depth"]).eval()
    predict = torch.compile(model)
    table = torch.randn(cfg["rows"], cfg["columns"])
    scores = []
    with torch.no_grad():
        for part in table.split(cfg["batch"]):
            scores.append(predict(part))
    scores = torch.cat(scores)
    logging.info("scored %d rows, mean %.4f, top row %d", len(scores), scores.mean(), scores.argmax())


if __name__ == "__main__":
    main()
