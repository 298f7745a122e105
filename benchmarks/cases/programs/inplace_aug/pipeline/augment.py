import torch
import torch.nn.functional as F
from torch import nn

_STEPS = {}


def step(fn):
    _STEPS[fn.__name__] = torch.compile(fn)
    return fn


@step
def gain(img, p):
    return img * p["gain"]


@step
def thumbnail_and_whiten(img, p):
    """Append a thumbnail of the upper left part, then whiten the picture without a copy."""
    thumb = F.interpolate(img[:, :20, :20].unsqueeze(0), size=(10, 10), mode="bilinear", align_corners=False)
    img.sub_(p["shift"]).div_(p["spread"])
    return img, thumb.squeeze(0)


class Augmenter(nn.Module):
    """Learned colour augmentation (all parameters are trained with the classifier)."""

    def __init__(self, channels, names):
        super().__init__()
        self.names = names
        self.params = nn.ParameterDict(
            {
                "gain": nn.Parameter(torch.full((channels, 1, 1), 1.1)),
                "shift": nn.Parameter(torch.full((channels, 1, 1), 0.05)),
                "spread": nn.Parameter(torch.full((channels, 1, 1), 0.8)),
            }
        )

    def forward(self, img):
        out = img
        for name in self.names:
            out = _STEPS[name](out, self.params)
        return out


def build_augment(spec, channels):
    return Augmenter(channels, [s.strip() for s in spec.split(">")])
