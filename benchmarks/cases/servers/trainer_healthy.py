"""A healthy Trainer on two ranks, whose samples are slow.

Truth: it advances; a step takes some seconds.

Run: {python} -m torch.distributed.run --nproc-per-node 2 --standalone trainer_healthy.py
Settle: 25
Attach: root
Modes: busy
Needs: torch transformers accelerate
"""

import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments


class Rows(Dataset):
    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        time.sleep(2)
        return {"x": torch.full((8,), float(number)), "labels": torch.tensor(number % 3)}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        max_steps=1000,
        per_device_train_batch_size=4,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    print("ready", flush=True)
    Trainer(Model(), arguments, train_dataset=Rows()).train()


if __name__ == "__main__":
    main()
