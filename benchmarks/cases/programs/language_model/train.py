import argparse
import logging
import os

import torch

from data import Tokenizer, read_lines
from model import Config, Model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    logging.basicConfig(filename="train.log", level=logging.INFO)
    tokenizer = Tokenizer("vocabulary.txt")
    config = Config(layers=args.layers)
    model = torch.compile(Model(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, text in zip(range(args.steps), read_lines("corpus.jsonl")):
        ids = torch.tensor(tokenizer.encode(text, config.length))
        loss = torch.nn.functional.cross_entropy(model(ids), ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        logging.info("step %d: %f", step, loss.item())
    os.makedirs("checkpoints", exist_ok=True)
    torch.save(model.state_dict(), "checkpoints/last.pt")


if __name__ == "__main__":
    main()
