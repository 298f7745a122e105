"""Select the attention kernel that a GPU would run.

A torch without CUDA cannot select one, and would always run the plain implementation. The
conditions are those of ``aten/native/transformers/cuda/sdp_utils.cpp`` that depend on shapes and
types. A device may prefer cuDNN's kernel, which depends on libraries that this machine may lack.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import torch

MAX_FLASH_HEAD_SIZE = 256
ALIGNMENT = 8
"""Elements: heads of flash attention and strides of a mask are padded to a multiple of it."""


def replace_attention(capability: int) -> None:
    """Trace ``scaled_dot_product_attention`` of fake CUDA tensors as the kernel of a GPU."""
    aten = torch.ops.aten
    operator = aten.scaled_dot_product_attention.default
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    plain = operator.py_kernels.pop(key, None) or functools.partial(operator._op_dk, key)

    def attend(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        kernel = _select_kernel(capability, q, k, v, attn_mask, enable_gqa)
        if kernel == "flash":
            head = q.shape[-1]
            # the default scale depends on the size of the head without padding
            scale = head**-0.5 if scale is None else scale
            if head % ALIGNMENT:
                padding = (0, ALIGNMENT - head % ALIGNMENT)
                q, k, v = (torch.nn.functional.pad(x, padding) for x in (q, k, v))
            out = aten._scaled_dot_product_flash_attention(
                q, k, v, dropout_p, is_causal, scale=scale
            )[0]
            return out[..., :head] if head % ALIGNMENT else out
        if kernel == "efficient":
            bias = None if attn_mask is None else _attention_bias(attn_mask, q, k)
            needs_logsumexp = q.requires_grad or k.requires_grad or v.requires_grad
            return aten._scaled_dot_product_efficient_attention(
                q, k, v, bias, needs_logsumexp, dropout_p, is_causal, scale=scale
            )[0]
        return plain(q, k, v, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    operator._dispatch_cache.clear()
    operator.py_impl(key)(attend)


def _select_kernel(
    capability: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    is_grouped: bool,
) -> Literal["flash", "efficient", "math"]:
    backends: Any = torch.backends.cuda
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
        and q.shape[-1] <= MAX_FLASH_HEAD_SIZE
    )
    if fits_flash and backends.flash_sdp_enabled():
        return "flash"
    is_known = q.dtype in (*half, torch.float32) and (q.dtype != torch.bfloat16 or capability >= 80)
    is_aligned = all(
        x.shape[-1] % (4 if q.dtype == torch.float32 else ALIGNMENT) == 0 for x in (q, v)
    )
    if is_known and is_aligned and not is_grouped and backends.mem_efficient_sdp_enabled():
        return "efficient"
    return "math"


def _attention_bias(mask: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return the mask as an aligned bias of the scores, for the memory-efficient kernel."""
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, float("-inf"))
    if any(isinstance(s, int) and s % ALIGNMENT for s in mask.stride()[:-1]):
        last = mask.shape[-1]
        mask = torch.nn.functional.pad(mask, (0, ALIGNMENT - last % ALIGNMENT))[..., :last]
    return mask.expand(*q.shape[:-1], k.shape[-2])
