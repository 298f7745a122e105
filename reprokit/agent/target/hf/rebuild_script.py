"""Write the script that builds an ``hf:`` target, which is the first candidate for a repro."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import configuration
from .example_inputs import InputMaker, InputRecipe

SIZES = (
    "vocab_size hidden_size d_model n_embd intermediate_size d_ff ffn_dim encoder_ffn_dim"
    " decoder_ffn_dim num_attention_heads n_head num_heads encoder_attention_heads"
    " decoder_attention_heads num_key_value_heads head_dim d_kv num_local_experts num_experts"
    " image_size"
).split()
"""Fields that are arguments of ``make``, like the layers, so that a reduction can decrease them."""
LEFT_OUT = ("_name_or_path", "transformers_version", "auto_map", "model_type")


def write_script(
    config: Any,
    changed: Mapping[str, Any],
    model_class: Any,
    recipes: Mapping[str, InputRecipe],
    inputs: InputMaker,
) -> tuple[str, dict[str, int]]:
    """Return source text with a factory ``make``, and the arguments of its call.

    ``changed`` are the fields from which ``config`` was built.
    """
    fields = configuration.fields_of(config)
    kept = {k: v for k, v in changed.items() if k not in LEFT_OUT}
    sizes = {
        n: fields[n]
        for n in (*configuration.LAYERS, *SIZES)
        if type(fields.get(n)) is int
        and fields[n] > 0
        and (n in kept or n in configuration.LAYERS or not _is_derived(n, fields))
    }
    fixed = {k: v for k, v in kept.items() if k not in sizes}
    name = type(config).__name__
    entries = "".join(f"{k!r}: {v!r}, " for k, v in fixed.items())
    call = f"{name}.from_dict({{{entries}**sizes}})" if fixed else f"{name}(**sizes)"
    rows = ["import torch", f"from transformers import {name}, {model_class.__name__}", "", ""]
    rows += ["def make(batch_size, sequence_length, **sizes):", f"    config = {call}"]
    for path, part in configuration.parts_of(config):
        if getattr(part, "use_cache", None) is False:
            rows.append(f"    {'.'.join(('config', *path))}.use_cache = False")
    arguments = ", ".join(f'"{n}": {r.source_text(inputs.length)}' for n, r in recipes.items())
    rows.append(f"    return {model_class.__name__}(config), (), {{{arguments}}}")
    return "\n".join(rows) + "\n", {
        "batch_size": inputs.batch,
        "sequence_length": inputs.length,
        **sizes,
    }


def _is_derived(name: str, fields: Mapping[str, Any]) -> bool:
    """Whether a field is the size of a head, which follows from two other sizes.

    As an argument, it would prevent a reduction of the others.
    """
    heads = fields.get("num_attention_heads", 0)
    return name in ("head_dim", "d_kv") and fields.get("hidden_size", 0) == fields[name] * heads
