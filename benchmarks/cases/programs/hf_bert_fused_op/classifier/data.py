import csv

import torch
from torch.utils.data import Dataset


class Reviews(Dataset):
    def __init__(self, path, max_length=16):
        with open(path, newline="") as f:
            self.rows = [(r["text"], int(r["label"])) for r in csv.DictReader(f)]
        words = sorted({w for t, _ in self.rows for w in t.split()})
        self.vocab = {w: i + 4 for i, w in enumerate(words)}
        self.max_length = max_length

    @property
    def vocab_size(self):
        return len(self.vocab) + 4

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text, label = self.rows[i]
        ids = [1] + [self.vocab[w] for w in text.split()][: self.max_length - 2] + [2]
        mask = [1] * len(ids) + [0] * (self.max_length - len(ids))
        ids += [0] * (self.max_length - len(ids))
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask),
                "labels": torch.tensor(label)}
