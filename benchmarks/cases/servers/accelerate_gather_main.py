"""An evaluation with accelerate that gathers the predictions on the main process only.

https://github.com/huggingface/accelerate/issues/2785 (also 2733)

Truth: rank 0 is in gather_for_metrics, which all ranks must call. Rank 1 skipped it and waits in
wait_for_everyone.

Words: rank 0, rank 1
Run: {python} -m torch.distributed.run --nproc-per-node 2 --standalone accelerate_gather_main.py
Settle: 15
Attach: root
Needs: torch accelerate
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset


def evaluate(accelerator: Accelerator, model: torch.nn.Module, loader: DataLoader) -> float:
    right = 0
    for images, labels in loader:
        with torch.no_grad():
            predictions = model(images).argmax(1)
        if accelerator.is_main_process:
            predictions, labels = accelerator.gather_for_metrics((predictions, labels))  # HANG
            right += (predictions == labels).sum().item()
        accelerator.wait_for_everyone()  # HANG
    return right / len(loader.dataset)


def main() -> None:
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
    model, loader = accelerator.prepare(torch.nn.Linear(8, 3), DataLoader(data, batch_size=8))
    print("ready", flush=True)
    print(evaluate(accelerator, model, loader))


if __name__ == "__main__":
    main()
