import argparse

import torch

from pipeline import SCHEDULERS, Pipeline, build_unet


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--scheduler", choices=sorted(SCHEDULERS), default="euler")
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--label", type=int, default=2)
    p.add_argument("--guidance", type=float, default=3.0)
    p.add_argument("--size", type=int, default=16)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--no-compile", action="store_true")
    args = p.parse_args()

    torch.manual_seed(args.seed)
    unet = build_unet(args.size, num_class_embeds=11)
    scheduler = SCHEDULERS[args.scheduler](num_train_timesteps=1000)
    pipe = Pipeline(unet, scheduler)
    if not args.no_compile:
        # the whole step in one graph, not only the unet
        pipe.denoise_one = torch.compile(pipe.denoise_one, fullgraph=True)
    g = torch.Generator().manual_seed(args.seed)
    image = pipe(args.label, args.steps, args.guidance, g, args.size, n=2)
    print("image", tuple(image.shape), "mean", round(image.mean().item(), 4))


if __name__ == "__main__":
    main()
