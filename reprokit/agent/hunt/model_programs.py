"""Models of transformers in small sizes: trained or not, dynamic or not, by each way into the
compiler.

The place of the source is a list of types, joined by ``+``; empty for all types.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ...core.shared.errors import BadTarget
from ...core.shared.source import entry_programs
from ..target.hf import build_model, configuration
from .drawing import Drawing

MAX_TRIES = 6
SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 37,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "d_model": 32,
    "d_ff": 37,
    "d_kv": 8,
    "n_embd": 32,
    "n_head": 4,
    "num_heads": 4,
    "ffn_dim": 37,
    "encoder_ffn_dim": 37,
    "decoder_ffn_dim": 37,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_experts": 4,
    "num_local_experts": 4,
}
"""Sizes as in the tests of transformers. A type that is not right with them keeps its own."""
PROGRAM = '''\
"""A small model of transformers."""

{build}

def make():
    torch.manual_seed(0)
    sizes = {sizes}
    model, args, kwargs = build(**sizes)
    calls = [(args, kwargs)]
    for length in {lengths}:
        calls.append(build(**{{**sizes, "sequence_length": length}})[1:])
    how = {{"compile": {options}, "train": {is_train}, "entry": "{entry}"}}
    return {{"model": model, "calls": calls, **how}}
'''


def write_program(draw: Drawing) -> str:
    """Return a program of a type that runs without the compiler; raises BadTarget if none does."""
    library = configuration.load_transformers()
    types = draw.place.split("+") if draw.place else build_model.model_types_of(library)
    for _ in range(MAX_TRIES):
        before = dict(draw.chosen)
        name = draw.choose("type", types)
        layers = draw.random.randint(1, 2)
        with contextlib.suppress(BadTarget):
            return _program_text(draw, *_find_script(library, name, layers))
        draw.chosen = before
    raise BadTarget(f"none of {MAX_TRIES} types runs without the compiler")


def _find_script(library: Any, name: str, layers: int) -> tuple[str, dict[str, int]]:
    """Return the text that builds a model, and its sizes; raises BadTarget if none is right."""
    config, _ = configuration.make_configuration(library, "", name, {})
    fields = config.to_dict()
    small = {key: value for key, value in SMALL.items() if type(fields.get(key)) is int}
    dropped = {k: 0.0 for k, v in fields.items() if "drop" in k and isinstance(v, float)}
    knobs = {**dropped, "batch_size": 2, "sequence_length": 16}
    knobs |= {"layers": layers} if configuration.layer_fields(config) else {}
    try:
        plan = build_model.plan_model(library, "", name, {**knobs, **small})
        return build_model.find_script(plan)
    except BadTarget:
        return build_model.find_script(build_model.plan_model(library, "", name, knobs))


def _program_text(draw: Drawing, script: str, sizes: dict[str, int]) -> str:
    is_train = draw.is_chosen(0.4)
    entries = [
        entry
        for entry in entry_programs.ENTRIES
        if not (is_train and entry in (entry_programs.AOTINDUCTOR, entry_programs.EXPORT))
        and (is_train or entry != entry_programs.COMPILED_AUTOGRAD)
    ]
    entry = draw.choose("entry", entries)
    is_dynamic = draw.is_chosen(0.4) and entry not in entry_programs.WITHOUT_DYNAMO
    return PROGRAM.format(
        build=script.replace("def make(", "def build("),
        sizes=sizes,
        lengths=[sizes["sequence_length"] + 5] if draw.is_chosen(0.5) else [],
        options='{"dynamic": True}' if is_dynamic else "{}",
        is_train=is_train,
        entry=entry,
    )
