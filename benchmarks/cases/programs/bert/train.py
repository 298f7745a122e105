import torch
from transformers import BertConfig, BertModel


class Classifier(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.bert, self.calls = BertModel(config), 0
        self.head = torch.nn.Linear(config.hidden_size, 2)

    def forward(self, ids):
        self.calls += 1
        hidden = self.bert(ids).last_hidden_state[:, 0]
        return self.head(hidden) * min(1.0, self.calls / 10)


config = BertConfig(
    vocab_size=100,
    hidden_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=64,
)
model = Classifier(config).eval()
compiled = torch.compile(model, backend="aot_eager")
with torch.no_grad():
    for step in range(12):
        print(compiled(torch.randint(0, 100, (2, 16))).sum())
