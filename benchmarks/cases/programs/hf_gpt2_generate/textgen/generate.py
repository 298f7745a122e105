import torch
from transformers import DynamicCache

from .sampling import NoRepeatNgram, repetition_penalty


class Generator:
    def __init__(self, model, tokenizer, penalty=1.1, no_repeat=2, compile=True):
        self.model, self.tok = model.eval(), tokenizer
        self.penalty = penalty
        self.ngram = NoRepeatNgram(no_repeat)
        self.decode_one = torch.compile(self._decode_one, fullgraph=True) if compile else self._decode_one

    def _decode_one(self, last, cache, input_ids):
        out = self.model(input_ids=last, cache=cache, use_cache=True)
        logits = out.logits[:, -1].float()
        logits = repetition_penalty(logits, input_ids, self.penalty)
        logits = self.ngram(logits, input_ids)
        return logits.argmax(-1, keepdim=True)

    @torch.no_grad()
    def __call__(self, prompt, max_new_tokens):
        ids = torch.tensor([self.tok.encode(prompt)])
        cache = DynamicCache()
        last = ids
        for _ in range(max_new_tokens):
            nxt = self.decode_one(last, cache, ids)
            ids = torch.cat([ids, nxt], 1)
            last = nxt
            if nxt.item() == self.tok.eos_id:
                break
        return self.tok.decode(ids[0].tolist())
