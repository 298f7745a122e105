"""Fine-tune a small BERT with a fused feed-forward operator."""
import argparse
import os

import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

from classifier.data import Reviews
from classifier.patch import fuse


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    p = argparse.ArgumentParser()
    p.add_argument("--train_file", default=os.path.join(here, "reviews.csv"))
    p.add_argument("--per_device_train_batch_size", type=int, default=4)
    p.add_argument("--max_steps", type=int, default=4)
    p.add_argument("--learning_rate", type=float, default=5e-4)
    p.add_argument("--no_fuse", action="store_true")
    args = p.parse_args()

    torch.manual_seed(1)
    data = Reviews(args.train_file)
    config = BertConfig(vocab_size=data.vocab_size, hidden_size=32, num_hidden_layers=1,
                        num_attention_heads=2, intermediate_size=64, max_position_embeddings=32,
                        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=2)
    model = BertForSequenceClassification(config)
    if not args.no_fuse:
        print("fused layers:", fuse(model))
    opt = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    sched = get_linear_schedule_with_warmup(opt, 1, args.max_steps)
    loader = DataLoader(data, batch_size=args.per_device_train_batch_size, shuffle=True,
                        generator=torch.Generator().manual_seed(0), drop_last=True)
    net = torch.compile(model)
    net.train()
    for step, batch in zip(range(args.max_steps), loader):
        out = net(**batch)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad()
        print(f"step {step} loss {out.loss.item():.4f}")


if __name__ == "__main__":
    main()
