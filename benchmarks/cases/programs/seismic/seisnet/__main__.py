"""python -m seisnet [samples=75] [stages=3] ..."""
import sys

import torch

from . import Picker, Settings, __version__


def windows(s, count):
    gen = torch.Generator().manual_seed(s.seed)
    for i in range(count):
        noise = torch.randn(s.batch, s.channels, s.samples, generator=gen)
        onset = torch.zeros(s.samples)
        onset[s.samples // 2 :] = torch.sin(torch.arange(s.samples - s.samples // 2) / 2.0)
        yield noise * 0.2 + onset * (torch.arange(s.batch) % 2).view(-1, 1, 1)


def main(argv):
    s = Settings.parse(argv)
    torch.manual_seed(s.seed)
    picker = Picker(s).eval()
    print(f"seisnet {__version__}: {sum(p.numel() for p in picker.parameters())} parameters")
    picker.compile()
    with torch.inference_mode():
        for i, window in enumerate(windows(s, 2)):
            print(i, " ".join(f"{p:.3f}" for p in picker(window).tolist()))


main(sys.argv[1:])
