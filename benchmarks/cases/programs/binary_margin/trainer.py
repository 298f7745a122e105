import torch
from torch import nn


class GradientCheckMixin:
    """Compares the gradients of the fast step with those of the plain one."""

    check_every = 0
    rtol, atol = 1e-3, 1e-5

    def grads_of(self, step, *batch):
        self.model.zero_grad(set_to_none=True)
        loss = step(*batch)
        loss.backward()
        return loss.detach(), {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None}

    def check_gradients(self, *batch):
        want_loss, want = self.grads_of(self.plain_step, *batch)
        got_loss, got = self.grads_of(self.fast_step, *batch)
        assert torch.allclose(got_loss, want_loss, rtol=self.rtol), "the losses differ"
        for name, g in want.items():
            worst = (got[name] - g).abs().max().item()
            assert torch.allclose(got[name], g, self.rtol, self.atol), f"gradient of {name} is off by {worst:.4g}"


class Trainer(GradientCheckMixin):
    def __init__(self, model, opt, loss_kwargs, check_every=0):
        self.model, self.opt, self.check_every = model, opt, check_every
        self.criterion = nn.MultiMarginLoss(**loss_kwargs)
        self.fast_step = torch.compile(self.plain_step)
        self.count = 0

    def plain_step(self, x, y):
        return self.criterion(self.model(x), y)

    def train_step(self, x, y):
        if self.check_every and self.count % self.check_every == 0:
            self.check_gradients(x, y)
        self.count += 1
        self.opt.zero_grad(set_to_none=True)
        loss = self.fast_step(x, y)
        loss.backward()
        self.opt.step()
        with torch.no_grad():
            for p in self.model.parameters():
                p.clamp_(-1, 1)
        return loss.item()
