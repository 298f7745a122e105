import argparse
import logging

import torch
from data import Tokenizer, read_lines
from model import Config, Model


@torch.no_grad()
def evaluate(model, tokenizer, config, texts):
    total = 0.0
    for step, text in enumerate(texts):
        ids = torch.tensor(tokenizer.encode(text, config.length))
        loss = torch.nn.functional.cross_entropy(model(ids), ids)
        logging.info("step %d: %f", step, loss.item())
        total += loss.item()
    return total / len(texts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--checkpoint", default="model.pt")
    args = parser.parse_args()
    logging.basicConfig(filename="evaluate.log", level=logging.INFO)
    config = Config(layers=args.layers)
    model = Model(config)
    model.load_state_dict(torch.load(args.checkpoint))
    model = torch.compile(model.eval())
    loss = evaluate(model, Tokenizer("vocabulary.txt"), config, read_lines("corpus.jsonl"))
    with open("result.txt", "w") as file:
        file.write(f"{loss:.4f}\n")


if __name__ == "__main__":
    main()
