"""A Trainer with a callback that only the main process leaves through a barrier.

https://github.com/EleutherAI/sparsify/pull/5 (the other ranks return early from save) and
https://github.com/huggingface/transformers/issues/17478

Truth: rank 0 waits in the barrier of the callback. Rank 1 returned from it early, and waits in the
next collective of the training loop.

Words: rank 0, rank 1
Run: {python} -m torch.distributed.run --nproc-per-node 2 --standalone trainer_callback_barrier.py
Settle: 25
Attach: root
Needs: torch transformers accelerate
"""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments


class Rows(Dataset):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((8,), float(number)), "labels": torch.tensor(number % 3)}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Export(TrainerCallback):
    def on_step_end(self, args, state, control, **more):  # type: ignore[no-untyped-def]
        if state.global_step != 3 or not state.is_world_process_zero:
            return
        torch.save(more["model"].state_dict(), f"{args.output_dir}/export.pt")
        torch.distributed.barrier()  # HANG


def main() -> None:
    arguments = TrainingArguments(
        tempfile.mkdtemp(), max_steps=100, use_cpu=True, report_to=[], save_strategy="no"
    )
    trainer = Trainer(Model(), arguments, train_dataset=Rows(), callbacks=[Export()])
    print("ready", flush=True)
    trainer.train()  # HANG


if __name__ == "__main__":
    main()
