import torch


def repetition_penalty(logits, seen, penalty):
    score = torch.gather(logits, 1, seen)
    score = torch.where(score < 0, score * penalty, score / penalty)
    return logits.scatter(1, seen, score)


class NoRepeatNgram:
    """Bans every token which would repeat an n-gram, as transformers does it."""

    def __init__(self, n):
        self.n = n

    def banned(self, ids):
        seen = {}
        for i in range(len(ids) - self.n + 1):
            gram = tuple(ids[i:i + self.n])
            seen.setdefault(gram[:-1], []).append(gram[-1])
        return seen.get(tuple(ids[len(ids) - self.n + 1:]), [])

    def __call__(self, logits, input_ids):
        logits = logits.clone()
        for row in range(input_ids.shape[0]):
            for tok in self.banned(input_ids[row].tolist()):
                logits[row, tok] = -float("inf")
        return logits
