"""Fine-tune a small ViT from timm with a drop-path schedule."""
import argparse
import os

import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.utils import AverageMeter, ModelEmaV3, accuracy

import finetune
from finetune.config import Config

torch._dynamo.config.recompile_limit = 4
torch._dynamo.config.fail_on_recompile_limit_hit = True

HERE = os.path.dirname(os.path.abspath(__file__))


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--config", default=os.path.join(HERE, "config.json"))
    p.add_argument("--data", default=os.path.join(HERE, "train.npz"))
    p.add_argument("--ema", action="store_true")
    p.add_argument("--torchcompile", nargs="?", const="inductor", default=None)
    return p.parse_args()


def main():
    args = parse()
    cfg = Config.load(args.config)
    torch.manual_seed(cfg.seed)

    model = finetune.build_model(cfg)
    loader = finetune.build_loader(args.data, cfg.batch_size, cfg.seed)
    loss_fn = LabelSmoothingCrossEntropy(cfg.smoothing)
    opt = torch.optim.AdamW(finetune.param_groups(model, cfg), lr=cfg.lr)
    schedule = finetune.DropPathSchedule(model, cfg.drop_path_max, cfg.steps)
    ema = ModelEmaV3(model, decay=0.99) if args.ema else None

    net = torch.compile(model, backend=args.torchcompile) if args.torchcompile else model
    model.train()
    meter, top1 = AverageMeter(), AverageMeter()
    step = 0
    while step < cfg.steps:
        for images, labels in loader:
            lr = finetune.cosine_lr(opt, cfg.lr, step, cfg.steps)
            rate = schedule.step(step)
            out = net(images)
            loss = loss_fn(out, labels)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if ema is not None:
                ema.update(model, step=step)
            meter.update(loss.item(), images.size(0))
            top1.update(accuracy(out.detach(), labels)[0].item(), images.size(0))
            if step % 5 == 0:
                print(f"step {step} loss {meter.avg:.4f} top1 {top1.avg:.1f} "
                      f"lr {lr:.2e} drop_path {rate:.3f}")
            step += 1
            if step >= cfg.steps:
                break
    print(f"done: loss {meter.avg:.4f} top1 {top1.avg:.1f}")


if __name__ == "__main__":
    main()
