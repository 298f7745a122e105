from torch import nn

_LOSSES = {}


class Loss(nn.Module):
    weight = 1.0

    def __init_subclass__(cls, key=None, **kw):
        super().__init_subclass__(**kw)
        if key:
            _LOSSES[key] = cls


class Total(nn.Module):
    def __init__(self, terms):
        super().__init__()
        self.terms = nn.ModuleDict(terms)

    def forward(self, a, b):
        return sum(t.weight * t(a, b) for t in self.terms.values())


def build_loss(spec):
    terms = {}
    for key, kwargs in spec.items():
        kwargs = dict(kwargs)
        weight = kwargs.pop("weight", 1.0)
        terms[key] = _LOSSES[key](**kwargs)
        terms[key].weight = weight
    return Total(terms)
