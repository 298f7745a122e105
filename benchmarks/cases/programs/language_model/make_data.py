"""Make the data of the program."""

import json

words = [f"word{i}" for i in range(90)]
open("vocabulary.txt", "w").write(" ".join(words))
with open("corpus.jsonl", "w") as file:
    for i in range(20):
        file.write(json.dumps({"text": " ".join(words[i : i + 8])}) + "\n")

import torch  # noqa: E402
from model import Config, Model  # noqa: E402

torch.save(Model(Config()).state_dict(), "model.pt")
