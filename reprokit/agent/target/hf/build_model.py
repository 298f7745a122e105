"""Build targets ``hf:TYPE`` and ``hf:PATH/config.json``: models with random weights.

A forward pass without the compiler decides which class and which inputs are used.
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
"""Tables of the library by task, in the order in which a class is searched. The bare model and the
other tables follow.
"""
MAX_CLASSES = 3
"""Limit of classes that are tried."""
FAKE_TENSOR_ERRORS = (
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "UnsupportedOperatorException",
)
"""Errors that do not depend on whether the inputs are right."""
ACTIVATIONS = 1.3
"""The memory of a forward pass of small inputs, as a factor of the weights; a rough estimate."""


@dataclass(frozen=True)
class ModelPlan:
    """The model that is built, before it takes memory."""

    library: Any
    config: Any
    changed: dict[str, Any]
    """The fields of the configuration that are not the library's default."""
    classes: tuple[Any, ...]
    """Classes of model that may be right, the most probable first."""
    batch_size: int | None
    sequence_length: int | None
    dtype: str | None


def plan_model(library: Any, place: str, name: str, knobs: dict[str, Any]) -> ModelPlan:
    """Build the configuration and find the classes; raises BadTarget if one cannot be used."""
    config, changed = configuration.make_configuration(library, place, name, knobs)
    dtype = (
        knobs.get("dtype")
        or str(getattr(config, "dtype", None) or "").removeprefix("torch.")
        or None
    )
    return ModelPlan(
        library,
        config,
        changed,
        tuple(_find_classes(library, config)),
        knobs.get("batch_size"),
        knobs.get("sequence_length"),
        dtype,
    )


def model_types_of(library: Any) -> list[str]:
    """Return all model types of this transformers that have a model of their own."""
    tables = importlib.import_module("transformers.models.auto.modeling_auto")
    mappings = [
        getattr(tables, n)
        for n in dir(tables)
        if n.startswith("MODEL_") and n.endswith("MAPPING_NAMES")
    ]
    return sorted({t for mapping in mappings for t in mapping} & set(library.CONFIG_MAPPING.keys()))


def needed_bytes(plan: ModelPlan, is_train: bool) -> int | None:
    """Return the memory of real weights and activations, or None if it cannot be computed.

    The model is built on the meta device, which takes no memory.
    """
    import torch

    with contextlib.suppress(Exception), torch.device("meta"), _default_dtype(plan.dtype):
        model = plan.classes[0](plan.config)
        size = sum(t.numel() * t.element_size() for t in (*model.parameters(), *model.buffers()))
        return int(size * (2 if is_train else 1) * ACTIVATIONS)
    return None


def build_model(plan: ModelPlan) -> BuiltTarget:
    """Build the first class that runs with generated inputs; raises BadTarget if none does."""
    model, recipes = _find_model(plan)
    kwargs = {n: r.make_tensor(model.dtype) for n, r in recipes.items()}
    text, call = _write_script(plan, type(model), recipes)
    journal.write_event(
        events.TransformersModel(
            kind=type(model).__name__,
            inputs={n: list(r.shape) for n, r in recipes.items()},
            dtype=plan.dtype or "",
            script=text,
            call=dict(call),
        )
    )
    return BuiltTarget(model, [((), kwargs)], form="args, kwargs")


def find_script(plan: ModelPlan) -> tuple[str, dict[str, int]]:
    """Return the text of a factory ``make`` of the first class that runs with generated inputs, and
    the arguments of its call; raises BadTarget if none does.
    """
    model, recipes = _find_model(plan)
    return _write_script(plan, type(model), recipes)


def _write_script(
    plan: ModelPlan, model_class: Any, recipes: dict[str, InputRecipe]
) -> tuple[str, dict[str, int]]:
    inputs = InputMaker(plan.config, plan.batch_size, plan.sequence_length)
    return rebuild_script.write_script(plan.config, plan.changed, model_class, recipes, inputs)


def _find_model(plan: ModelPlan) -> tuple[Any, dict[str, InputRecipe]]:
    """Return the first model that runs with generated inputs, and the inputs; raises BadTarget if
    none does.
    """
    tried: list[str] = []
    for model_class in plan.classes[:MAX_CLASSES]:
        with _default_dtype(plan.dtype):
            model = _build_class(plan, model_class, tried)
        if model is None:
            continue
        recipes = _find_inputs(plan, model, tried)
        if recipes is not None:
            return model, recipes
    name, reasons = plan.config.model_type, "; ".join(tried)
    if all(" cannot be built" in t for t in tried):
        raise BadTarget(f"{name} cannot be built: {reasons}")
    raise BadTarget(
        f"no inputs were found with which {name} runs without torch.compile; tried: {reasons}"
    )


def describe_model(plan: ModelPlan) -> dict[str, object]:
    """Return the JSON values of ``reprokit models hf:TYPE``, without using real memory."""
    import torch

    model_class = plan.classes[0]
    inputs = InputMaker(plan.config, plan.batch_size, plan.sequence_length)
    parameters = None
    with contextlib.suppress(Exception), torch.device("meta"):
        parameters = sum(p.numel() for p in model_class(plan.config).parameters())
    recipes = next(inputs.input_choices(model_class), {})
    fields = {
        ".".join((*path, n)): value
        for path, part in configuration.parts_of(plan.config)
        for n, value in configuration.fields_of(part).items()
    }
    return {
        "name": plan.config.model_type,
        "transformers": plan.library.__version__,
        "class": model_class.__name__,
        "parameters": parameters,
        "layers": list(configuration.layer_fields(plan.config)),
        "batch_size": inputs.batch,
        "sequence_length": inputs.length,
        "inputs": {n: list(r.shape) for n, r in recipes.items()},
        "knobs": fields,
    }


def _find_classes(library: Any, config: Any) -> Iterator[Any]:
    """Yield the classes for a configuration: those it names, then those of the library's tables."""
    architectures = getattr(config, "architectures", None) or ()
    names = [architectures] if isinstance(architectures, str) else list(architectures)
    for name in names:
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
    for table in (*order, "MODEL_MAPPING_NAMES", *rest):
        entry = getattr(tables, table, {}).get(config.model_type, ())
        names += [entry] if isinstance(entry, str) else list(entry)
    classes, problem = [], ""
    for name in dict.fromkeys(names):
        try:
            classes.append(getattr(library, name))
        except (ImportError, AttributeError, RuntimeError) as missing:
            problem = problem or configuration.describe_error(missing)
    classes = [c for c in classes if not getattr(c, "is_dummy", False)]
    if not classes:
        why = (
            f": {problem}"
            if problem
            else "; it is a part of another model, or has no model for torch"
        )
        raise BadTarget(
            f"transformers {library.__version__} has no model for the type {config.model_type!r}"
            f" alone{why}"
        )
    yield from classes


def _build_class(plan: ModelPlan, model_class: Any, tried: list[str]) -> Any:
    """Build a model, or add the reason to ``tried`` and return None."""
    try:
        try:
            return model_class(plan.config).eval()
        except Exception as problem:
            if type(problem).__name__ not in FAKE_TENSOR_ERRORS:
                raise
            return _build_on_meta(plan, model_class)
    except Exception as problem:
        if is_out_of_memory(problem):
            raise
        reason = f"cannot be built ({cuts.cut_head(configuration.describe_error(problem), 200)})"
        if any(t.endswith(reason) for t in tried):
            reason = "cannot be built either"
        tried.append(f"{model_class.__name__} {reason}")
        return None


def _build_on_meta(plan: ModelPlan, model_class: Any) -> Any:
    """Build a model whose initialization fails on fake tensors, because it reads values."""
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    device = torch.get_default_device()
    with unset_fake_temporarily(), torch.device("meta"):
        model = model_class(plan.config).eval()
    return model._apply(lambda t: torch.empty(t.shape, dtype=t.dtype, device=device))


def _find_inputs(plan: ModelPlan, model: Any, tried: list[str]) -> dict[str, InputRecipe] | None:
    """Return the first inputs with which the model runs, or add the reason to ``tried``."""
    import torch

    model_class = type(model)
    inputs = InputMaker(plan.config, plan.batch_size, plan.sequence_length)
    errors: list[str] = []
    choices = list(inputs.input_choices(model_class))
    if not _has_fake_tensors():  # the position of an image in the text depends on values
        with contextlib.suppress(Exception):
            choices = [c for c in (inputs.text_with_image(model),) if c] + choices
    for choice in choices:
        try:
            with torch.no_grad():
                model(**{n: r.make_tensor(model.dtype) for n, r in choice.items()})
        except Exception as problem:
            if type(problem).__name__ in FAKE_TENSOR_ERRORS:
                return choice
            if is_out_of_memory(problem):
                raise
            errors.append(
                f"{', '.join(choice)}: {cuts.cut_head(configuration.describe_error(problem), 160)}"
            )
        else:
            torch.manual_seed(0)
            return choice
    if any("BF16" in e for e in errors) and _has_fake_tensors():
        errors = ["fake weights of experts need --dtype bfloat16"]
    if unknown := inputs.unknown_inputs(model_class):
        reason = f"it needs {', '.join(unknown)}, which cannot be generated"
    else:
        # the first choice is the usual one; the others are guesses
        reason = errors[0] if errors else "it has no known input"
    tried.append(f"{model_class.__name__} ({reason})")
    return None


def _has_fake_tensors() -> bool:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(torch.empty(1), FakeTensor)


@contextlib.contextmanager
def _default_dtype(dtype: str | None) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype) if dtype else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
