import timm


def build_model(cfg):
    return timm.create_model(
        cfg.model, pretrained=False, num_classes=cfg.num_classes,
        img_size=cfg.img_size, patch_size=cfg.patch_size,
        embed_dim=cfg.embed_dim, depth=cfg.depth, num_heads=cfg.num_heads,
        drop_path_rate=cfg.drop_path_max,
    )


def param_groups(model, cfg):
    """Layer-wise lr decay, no weight decay for biases, norms and tokens."""
    skip = model.no_weight_decay()
    n = len(model.blocks) + 1
    groups = {}
    for name, p in model.named_parameters():
        if name.startswith("blocks."):
            layer = int(name.split(".")[1]) + 1
        elif name.startswith(("patch_embed", "cls_token", "pos_embed")):
            layer = 0
        else:
            layer = n
        decay = 0.0 if p.ndim <= 1 or name in skip else cfg.weight_decay
        key = (layer, decay)
        if key not in groups:
            groups[key] = {"params": [], "weight_decay": decay,
                           "lr_scale": cfg.layer_decay ** (n - layer)}
        groups[key]["params"].append(p)
    return list(groups.values())
