import zlib

import torch


class HashTokenizer:
    """Hashes words into buckets, so that there is no vocabulary to keep."""

    pad = 0

    def __init__(self, buckets, max_len):
        self.buckets, self.max_len = buckets, max_len

    def encode(self, text):
        return [1 + zlib.crc32(w.encode()) % (self.buckets - 1) for w in text.lower().split()][: self.max_len]

    def __call__(self, texts):
        rows = [self.encode(t) for t in texts]
        ids = torch.full((len(rows), self.max_len), self.pad)
        for row, out in zip(rows, ids):
            out[: len(row)] = torch.tensor(row)
        return ids, torch.tensor([len(r) for r in rows])
