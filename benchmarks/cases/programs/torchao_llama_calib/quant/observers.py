import torch
from torch import nn


class ActivationRange(nn.Module):
    """Running per-channel range of the inputs of a Linear; `previous` holds the range before
    the latest batch, so that a caller can stop once the two are close."""

    def __init__(self, channels, momentum=0.25):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("current", torch.zeros(2, channels))
        self.register_buffer("previous", torch.zeros(2, channels))

    @torch.no_grad()
    def forward(self, x):
        flat = x.detach().flatten(0, -2)
        seen = torch.stack([flat.amin(0), flat.amax(0)])
        self.previous[0:, :] = self.current[0:, :]
        self.current.lerp_(seen, self.momentum)
        return x

    def drift(self):
        return (self.current - self.previous).abs().max().item()


class ObservedLinear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.observer = ActivationRange(linear.in_features)
        self.linear = linear

    def forward(self, x):
        return self.linear(self.observer(x))


def observe(model, names):
    """Replace each Linear whose own name is in `names`."""
    for module in list(model.modules()):
        for key, child in list(module.named_children()):
            if key in names and isinstance(child, nn.Linear):
                setattr(module, key, ObservedLinear(child))
    return {n: m.observer for n, m in model.named_modules() if isinstance(m, ObservedLinear)}


def strip(model):
    """Put the Linear modules back, with the equalisation scale of SmoothQuant folded in."""
    for module in list(model.modules()):
        for key, child in list(module.named_children()):
            if isinstance(child, ObservedLinear):
                setattr(module, key, child.linear)
    return model
