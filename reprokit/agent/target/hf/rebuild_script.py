"""The script that builds an ``hf:`` target again: what a repro begins with, and what stands in it
where no graph is.
"""

from __future__ import annotations

from typing import Any

from . import configuration
from .example_inputs import InputMaker, InputRecipe

SIZES = (
    "vocab_size hidden_size d_model n_embd intermediate_size d_ff ffn_dim encoder_ffn_dim"
    " decoder_ffn_dim num_attention_heads n_head num_heads encoder_attention_heads"
    " decoder_attention_heads num_key_value_heads head_dim d_kv num_local_experts num_experts"
    " image_size"
).split()
"""Fields that are written out as arguments of ``make``, beside the layers, so that a reduction can
make them smaller.
"""
UNTOLD = ("_name_or_path", "transformers_version", "auto_map", "model_type")


def write_script(
    config: Any,
    told: dict[str, Any],
    kind: Any,
    recipes: dict[str, InputRecipe],
    inputs: InputMaker,
) -> tuple[str, dict[str, Any]]:
    """Source text with a factory ``make``, and the arguments that it is called with."""
    usual = configuration.fields_of(config)
    kept = {k: v for k, v in told.items() if k not in UNTOLD}
    sizes = {
        n: usual[n]
        for n in (*configuration.LAYERS, *SIZES)
        if type(usual.get(n)) is int
        and usual[n] > 0
        and (n in kept or n in configuration.LAYERS or not _is_derived(n, usual))
    }
    fixed = {k: v for k, v in kept.items() if k not in sizes}
    name = type(config).__name__
    told_again = "".join(f"{k!r}: {v!r}, " for k, v in fixed.items())
    made = f"{name}.from_dict({{{told_again}**sizes}})" if fixed else f"{name}(**sizes)"
    rows = ["import torch", f"from transformers import {name}, {kind.__name__}", "", ""]
    rows += ["def make(batch_size, sequence_length, **sizes):", f"    config = {made}"]
    for path, part in configuration.parts_of(config):
        if getattr(part, "use_cache", None) is False:
            rows.append(f"    {'.'.join(('config', *path))}.use_cache = False")
    given = ", ".join(f'"{n}": {r.text(inputs.length)}' for n, r in recipes.items())
    rows.append(f"    return {kind.__name__}(config), (), {{{given}}}")
    return "\n".join(rows) + "\n", {
        "batch_size": inputs.batch,
        "sequence_length": inputs.length,
        **sizes,
    }


def _is_derived(name: str, usual: dict[str, Any]) -> bool:
    """The size of a head follows from others; written out, it would keep them from shrinking."""
    return name in ("head_dim", "d_kv") and usual.get("hidden_size", 0) == usual[name] * usual.get(
        "num_attention_heads", 0
    )
