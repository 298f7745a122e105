import torch
from torch.func import functional_call, grad, vmap


class PerSampleClipper:
    """Clips the gradient of each sample, as in DP-SGD, and adds noise to their mean."""

    def __init__(self, model, criterion, max_norm, noise, seed=0):
        self.model, self.criterion = model, criterion
        self.max_norm, self.noise = max_norm, noise
        self.generator = torch.Generator().manual_seed(seed)
        self.per_sample = torch.compile(self._per_sample)

    def _loss(self, params, x, y):
        return self.criterion(functional_call(self.model, params, (x.unsqueeze(0),)), y.unsqueeze(0))

    def _per_sample(self, params, x, y):
        return vmap(grad(self._loss), in_dims=(None, 0, 0))(params, x, y)

    def __call__(self, x, y):
        params = {k: p.detach() for k, p in self.model.named_parameters()}
        grads = self.per_sample(params, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
        factor = (self.max_norm / (norms + 1e-6)).clamp(max=1.0)
        for name, p in self.model.named_parameters():
            g = torch.einsum("b,b...->...", factor, grads[name]) / len(x)
            scale = self.noise * self.max_norm / len(x)
            p.grad = g + scale * torch.randn(g.shape, generator=self.generator)
        return norms
