"""Which attention a GPU would run: a torch without CUDA has no chooser, and would take the plain
one without a word.

The conditions are those of ``aten/native/transformers/cuda/sdp_utils.cpp`` that can be told from
shapes and types. A device may prefer cuDNN's kernel, which depends on libraries that are not here.
"""

from __future__ import annotations

import functools
from typing import Any

MOST_FLASH_HEAD = 256
ALIGNED = 8
"""Elements: heads of flash attention and strides of a mask are padded to a multiple of it."""


def replace_attention(torch: Any, capability: int) -> None:
    """Have ``scaled_dot_product_attention`` of fake CUDA tensors traced as flash or
    memory-efficient attention.
    """
    aten = torch.ops.aten
    operator = aten.scaled_dot_product_attention.default
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    plain = operator.py_kernels.pop(key, None) or functools.partial(operator._op_dk, key)

    def chosen(
        q: Any,
        k: Any,
        v: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: Any = None,
        enable_gqa: bool = False,
    ) -> Any:
        kernel = _kernel(torch, capability, q, k, v, attn_mask, enable_gqa)
        if kernel == "flash":
            head = q.shape[-1]
            scale = (
                head**-0.5 if scale is None else scale
            )  # of the head as it was before it is padded
            if head % ALIGNED:
                q, k, v = (
                    torch.nn.functional.pad(x, (0, ALIGNED - head % ALIGNED)) for x in (q, k, v)
                )
            out = aten._scaled_dot_product_flash_attention(
                q, k, v, dropout_p, is_causal, scale=scale
            )[0]
            return out[..., :head] if head % ALIGNED else out
        if kernel == "efficient":
            bias = None if attn_mask is None else _bias(torch, attn_mask, q, k)
            wants_sum = q.requires_grad or k.requires_grad or v.requires_grad
            return aten._scaled_dot_product_efficient_attention(
                q, k, v, bias, wants_sum, dropout_p, is_causal, scale=scale
            )[0]
        return plain(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    operator._dispatch_cache.clear()
    operator.py_impl(key)(chosen)


def _kernel(
    torch: Any, capability: int, q: Any, k: Any, v: Any, mask: Any, is_grouped: bool
) -> str:
    """``flash``, ``efficient`` or ``math``."""
    backends = torch.backends.cuda
    half = (torch.float16, torch.bfloat16)
    is_plain = q.device.type == "cuda" and all(
        x.dim() == 4 and x.dtype == q.dtype for x in (q, k, v)
    )
    if not is_plain:
        return "math"
    is_same_head = q.shape[-1] == k.shape[-1] == v.shape[-1]
    fits_flash = (
        mask is None
        and capability >= 80
        and q.dtype in half
        and is_same_head
        and q.shape[-1] <= MOST_FLASH_HEAD
    )
    if fits_flash and backends.flash_sdp_enabled():
        return "flash"
    is_known = q.dtype in (*half, torch.float32) and (q.dtype != torch.bfloat16 or capability >= 80)
    is_aligned = all(
        x.shape[-1] % (4 if q.dtype == torch.float32 else ALIGNED) == 0 for x in (q, v)
    )
    if is_known and is_aligned and not is_grouped and backends.mem_efficient_sdp_enabled():
        return "efficient"
    return "math"


def _bias(torch: Any, mask: Any, q: Any, k: Any) -> Any:
    """The mask as the memory-efficient kernel takes it: added to the scores, aligned, and as large
    as they are.
    """
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
    if any(isinstance(s, int) and s % ALIGNED for s in mask.stride()[:-1]):
        last = mask.shape[-1]
        mask = torch.nn.functional.pad(mask, (0, ALIGNED - last % ALIGNED))[..., :last]
    return mask.expand(*q.shape[:-1], k.shape[-2])
