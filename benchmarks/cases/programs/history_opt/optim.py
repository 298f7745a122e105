"""Optimizers of our group."""
import torch
from torch.optim import Optimizer


def _blend(param, window, decay, lr):
    """Step along the weighted mean of the window, then make room for the next gradient."""
    weights = decay ** torch.arange(window.shape[0], dtype=param.dtype)
    weights = (weights / weights.sum()).view(-1, *[1] * param.dim())
    param.sub_(lr * (window * weights).sum(0))
    window[1:] = window[:-1].clone()


class WindowedSGD(Optimizer):
    """SGD along a finite window of past gradients (momentum forgets nothing, this does)."""

    def __init__(self, params, lr=1e-2, window=5, decay=0.7, fused=True):
        super().__init__(params, dict(lr=lr, window=window, decay=decay))
        self._blend = torch.compile(_blend, dynamic=False) if fused else _blend

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("decay", 0.7)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["window"] = p.new_zeros(group["window"], *p.shape)
                state["window"][0].copy_(p.grad)
                self._blend(p, state["window"], group["decay"], group["lr"])
        return loss


REGISTRY = {"windowed": WindowedSGD, "sgd": torch.optim.SGD}


def create(name, params, **kwargs):
    return REGISTRY[name](params, **kwargs)
