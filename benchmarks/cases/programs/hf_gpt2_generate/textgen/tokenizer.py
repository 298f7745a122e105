import json


class ByteBPE:
    """Bytes plus a few merges read from a json file."""

    def __init__(self, path):
        with open(path) as f:
            blob = json.load(f)
        self.merges = {tuple(m): 256 + i for i, m in enumerate(blob["merges"])}
        self.eos_id = 256 + len(self.merges)
        self.bytes = {i: bytes([i]) for i in range(256)}
        for (a, b), i in self.merges.items():
            self.bytes[i] = self.bytes[a] + self.bytes[b]

    @property
    def vocab_size(self):
        return self.eos_id + 1

    def encode(self, text):
        ids = list(text.encode())
        for pair, new in self.merges.items():
            out, i = [], 0
            while i < len(ids):
                if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
                    out.append(new)
                    i += 2
                else:
                    out.append(ids[i])
                    i += 1
            ids = out
        return ids

    def decode(self, ids):
        return b"".join(self.bytes[i] for i in ids if i != self.eos_id).decode(errors="replace")
