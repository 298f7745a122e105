from .masks import as_mask


def masked_mean(x, mask):
    w = mask.unsqueeze(-1).to(x.dtype)
    return (x * w).sum(1) / w.sum(1).clamp(min=1)


def masked_max(x, mask):
    return x.masked_fill(~mask.unsqueeze(-1), float("-inf")).amax(1)


def pool(x, how, lengths=None):
    if lengths is None:
        return x.mean(1) if how == "mean" else x.amax(1)
    mask = as_mask(lengths, x.shape[1])
    return {"mean": masked_mean, "max": masked_max}[how](x, mask)
