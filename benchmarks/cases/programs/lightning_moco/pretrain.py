import argparse
import logging
import warnings

import lightning as L
import torch

from moco import MoCo, TwoViews

warnings.filterwarnings("ignore", module="lightning")
logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--queue", type=int, default=32)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--fast-dev-run", type=int, default=4)
    args = p.parse_args()

    L.seed_everything(7, verbose=False)
    model = MoCo(queue=args.queue, batch=args.batch)
    data = TwoViews(batch=args.batch)
    trainer = L.Trainer(accelerator="cpu", fast_dev_run=args.fast_dev_run,
                        enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, datamodule=data)
    print("final loss", float(trainer.callback_metrics["loss"]))


if __name__ == "__main__":
    main()
