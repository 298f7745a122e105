import argparse
import os
import pathlib

import numpy as np
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from host import Plugins, parse_spec
from host.chain import Chain

ROOT = pathlib.Path(os.environ.get("PLUGIN_ROOT", pathlib.Path(__file__).parent / "plugins"))
DEFAULT = "conv(kernel=5) | token-shift | drop-path(rate=0.3) | conv"


def batch(generator, size=8, steps=10, inputs=3):
    x = torch.randn(size, steps, inputs, generator=generator)
    return x, torch.stack([x[..., 0].sum(1), x[..., 1].amax(1)], 1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--blocks", default=DEFAULT)
    ap.add_argument("--width", type=int, default=12)
    ap.add_argument("--steps", type=int, default=6)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    plugins = Plugins(ROOT)
    blocks = [plugins.create("blocks", name, args.width, **kw) for name, kw in parse_spec(args.blocks)]
    net = Chain(blocks, 3, args.width, 2)
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    fast = torch.compile(net, fullgraph=True)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(args.seed)
    for step in range(args.steps):
        x, y = batch(generator)
        loss = torch.nn.functional.mse_loss(fast(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update_parameters(net)
        print(f"{step}: {loss.item():.4f}")
    ema.eval()
    x, y = batch(generator)
    with torch.no_grad():
        print("averaged:", round(torch.nn.functional.mse_loss(ema(x), y).item(), 4))


if __name__ == "__main__":
    main()
