"""Targets ``hf:TYPE`` and ``hf:PATH/config.json``: a model of transformers from its configuration,
with random weights.

Which class and which inputs are right is settled by a trial: one forward pass without the compiler.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ....core.shared import cuts
from ....core.shared.contract import events
from ....core.shared.errors import BadTarget
from ...record import journal
from ..factory import BuiltTarget, is_out_of_memory
from . import configuration, rebuild_script
from .example_inputs import InputMaker, InputRecipe

TABLES = (
    "MASKED_LM IMAGE_TEXT_TO_TEXT CAUSAL_LM MULTIMODAL_LM SEQ_TO_SEQ_CAUSAL_LM SPEECH_SEQ_2_SEQ CTC"
    " IMAGE_CLASSIFICATION VIDEO_CLASSIFICATION AUDIO_CLASSIFICATION OBJECT_DETECTION"
    " UNIVERSAL_SEGMENTATION SEMANTIC_SEGMENTATION DEPTH_ESTIMATION"
).split()
"""Tables of the library, by task, in the order in which a class is looked for; then the bare model,
then any other.
"""
MOST_CLASSES = 3
UNSAID = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "UnsupportedOperatorException",
)
"""Errors of fake tensors: they say nothing about the inputs."""
ACTIVATIONS = 1.3
"""What a forward pass of small inputs takes beside the weights, as a factor; a rough guess."""


@dataclass(frozen=True)
class ModelPlan:
    """What is built: settled before anything takes memory."""

    library: Any
    config: Any
    told: dict[str, Any]
    """What the configuration was made from, where that is not the library's default."""
    kinds: tuple[Any, ...]
    """Classes of model that may be right, the likeliest first."""
    batch_size: int | None
    sequence_length: int | None
    dtype: str | None


def plan_model(library: Any, place: str, name: str, knobs: dict[str, Any]) -> ModelPlan:
    """Read the knobs and find the classes; raises BadTarget for what is not there."""
    config, told = configuration.make_configuration(library, place, name, knobs)
    dtype = (
        knobs.get("dtype")
        or str(getattr(config, "dtype", None) or "").removeprefix("torch.")
        or None
    )
    kinds = tuple(_classes(library, config))
    return ModelPlan(
        library, config, told, kinds, knobs.get("batch_size"), knobs.get("sequence_length"), dtype
    )


def model_types_of(library: Any) -> list[str]:
    """All model types of this transformers that have a model, and are no mere part of one."""
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    named = [
        getattr(tables, n)
        for n in dir(tables)
        if n.startswith("MODEL_") and n.endswith("MAPPING_NAMES")
    ]
    return sorted({t for table in named for t in table} & set(library.CONFIG_MAPPING.keys()))


def needed_bytes(torch: Any, made: ModelPlan, is_train: bool) -> int | None:
    """What real weights take, counted on a network without memory; None where such a one cannot be
    built.
    """
    with contextlib.suppress(Exception), torch.device("meta"), _default_dtype(torch, made.dtype):
        model = made.kinds[0](made.config)
        size = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
        return int(size * (2 if is_train else 1) * ACTIVATIONS)
    return None


def build_model(torch: Any, made: ModelPlan) -> BuiltTarget:
    """Build the first class that runs with the inputs that can be made for it."""
    tried: list[str] = []
    for kind in made.kinds[:MOST_CLASSES]:
        with _default_dtype(torch, made.dtype):
            model = _build(torch, made, kind, tried)
        if model is None:
            continue
        found = _try(torch, made, model, tried)
        if found is not None:
            kwargs = {n: r.make(torch, model.dtype) for n, r in found.items()}
            _tell(made, kind, found)
            return BuiltTarget(model, [((), kwargs)], form="args, kwargs")
    named, said = made.config.model_type, "; ".join(tried)
    if all(" cannot be built" in t for t in tried):
        raise BadTarget(f"{named} cannot be built: {said}")
    raise BadTarget(
        f"no inputs were found with which {named} runs without torch.compile; tried: {said}"
    )


def _tell(made: ModelPlan, kind: Any, recipes: dict[str, InputRecipe]) -> None:
    inputs = InputMaker(made.config, made.batch_size, made.sequence_length)
    text, call = rebuild_script.write_script(made.config, made.told, kind, recipes, inputs)
    shapes = {n: list(r.shape) for n, r in recipes.items()}
    journal.write(
        events.TransformersModel(
            kind=kind.__name__, inputs=shapes, dtype=made.dtype or "", script=text, call=call
        )
    )


def about_model(torch: Any, made: ModelPlan) -> dict[str, Any]:
    """What ``reprokit models hf:TYPE`` says, without building anything that takes memory."""
    kind, inputs = made.kinds[0], InputMaker(made.config, made.batch_size, made.sequence_length)
    parameters = None
    with contextlib.suppress(Exception), torch.device("meta"):
        parameters = sum(p.numel() for p in kind(made.config).parameters())
    choice = next(inputs.choices(kind), {})
    shown = {
        ".".join((*path, n)): value
        for path, part in configuration.parts_of(made.config)
        for n, value in configuration.fields_of(part).items()
    }
    return {
        "name": made.config.model_type,
        "transformers": made.library.__version__,
        "class": kind.__name__,
        "parameters": parameters,
        "layers": list(configuration.layer_fields(made.config)),
        "batch_size": inputs.batch,
        "sequence_length": inputs.length,
        "inputs": {n: list(r.shape) for n, r in choice.items()},
        "knobs": shown,
    }


def _classes(library: Any, config: Any) -> Iterator[Any]:
    """The classes for a configuration: those it names, then those of the library's tables."""
    asked = getattr(config, "architectures", None) or ()
    for name in [asked] if isinstance(asked, str) else asked:
        if not hasattr(library, name):
            raise BadTarget(
                f"transformers {library.__version__} has no class {name!r}, which the configuration"
                " names"
            )
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    order = [f"MODEL_FOR_{t}_MAPPING_NAMES" for t in TABLES]
    if getattr(config, "is_decoder", False):
        order.remove("MODEL_FOR_MASKED_LM_MAPPING_NAMES")
    if getattr(config, "is_encoder_decoder", False):
        order.sort(key=lambda t: "SEQ_TO_SEQ" not in t and "SPEECH_SEQ" not in t)
    rest = [
        n
        for n in dir(tables)
        if n.startswith("MODEL_FOR_") and n.endswith("_MAPPING_NAMES") and n not in order
    ]
    names = [asked] if isinstance(asked, str) else list(asked)
    for table in (*order, "MODEL_MAPPING_NAMES", *rest):
        found = getattr(tables, table, {}).get(config.model_type, ())
        names += [found] if isinstance(found, str) else list(found)
    kinds, problem = [], ""
    for name in dict.fromkeys(names):
        try:
            kinds.append(getattr(library, name))
        except (ImportError, AttributeError, RuntimeError) as missing:
            problem = problem or configuration.one_line_of(missing)
    kinds = [k for k in kinds if not getattr(k, "is_dummy", False)]
    if not kinds:
        why = (
            f": {problem}"
            if problem
            else "; it is a part of another model, or has no model for torch"
        )
        raise BadTarget(
            f"transformers {library.__version__} has no model for the type {config.model_type!r}"
            f" alone{why}"
        )
    yield from kinds


def _build(torch: Any, made: ModelPlan, kind: Any, tried: list[str]) -> Any:
    try:
        try:
            return kind(made.config).eval()
        except Exception as problem:
            if type(problem).__name__ not in UNSAID:
                raise
            return _build_empty(torch, made, kind)
    except Exception as problem:
        if is_out_of_memory(problem):
            raise
        said = f"cannot be built ({cuts.cut_head(configuration.one_line_of(problem), 200)})"
        tried.append(
            f"{kind.__name__}"
            f" {said if not any(t.endswith(said) for t in tried) else 'cannot be built either'}"
        )
        return None


def _build_empty(torch: Any, made: ModelPlan, kind: Any) -> Any:
    """For fake tensors, where the initialisation asks for values: build on meta, which has none to
    initialise.
    """
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    device = torch.get_default_device()
    with unset_fake_temporarily(), torch.device("meta"):
        model = kind(made.config).eval()
    return model._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device=device))


def _try(
    torch: Any, made: ModelPlan, model: Any, tried: list[str]
) -> dict[str, InputRecipe] | None:
    """The first inputs with which the model runs."""
    kind = type(model)
    inputs = InputMaker(made.config, made.batch_size, made.sequence_length)
    said: list[str] = []
    choices = list(inputs.choices(kind))
    if not _is_fake(torch):  # where the image goes is a question of values
        with contextlib.suppress(Exception):
            choices = [c for c in (inputs.with_image(torch, model),) if c] + choices
    for choice in choices:
        try:
            with torch.no_grad():
                model(**{n: r.make(torch, model.dtype) for n, r in choice.items()})
        except Exception as problem:
            if type(problem).__name__ in UNSAID:
                return choice
            if is_out_of_memory(problem):
                raise
            said.append(
                f"{', '.join(choice)}: {cuts.cut_head(configuration.one_line_of(problem), 160)}"
            )
        else:
            torch.manual_seed(0)
            return choice
    if any("BF16" in s for s in said) and _is_fake(torch):
        said = ["fake weights of experts need --dtype bfloat16"]
    unknown = inputs.unknown(kind)
    why = f"it needs {', '.join(unknown)}, which cannot be made" if unknown else ""
    # the first is what the model is for; the others only guess
    tried.append(
        f"{kind.__name__}"
        f" ({said[0] if said and not why else why or 'it takes nothing that is known'})"
    )
    return None


def _is_fake(torch: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(torch.empty(1), FakeTensor)


@contextlib.contextmanager
def _default_dtype(torch: Any, dtype: str | None) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype) if dtype else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
