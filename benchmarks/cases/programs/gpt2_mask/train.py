import torch
from transformers import GPT2Config, GPT2Model

from masks import block_mask


class Scored(torch.nn.Module):
    def __init__(self):
        super().__init__()
        size = dict(n_embd=32, n_layer=1, n_head=2, vocab_size=50, n_positions=16)
        self.gpt = GPT2Model(GPT2Config(**size))

    def forward(self, ids):
        hidden = self.gpt(ids).last_hidden_state
        return block_mask(hidden @ hidden.transpose(-1, -2), ids.shape[1]) @ hidden


model = torch.compile(Scored().eval())
with torch.no_grad():
    print(model(torch.arange(8).unsqueeze(0)).shape)
