"""``torch.compile`` for programs that must not fail: a child process tries each compile first.

    from reprokit.api import safe_compile
    model = safe_compile(model, args, timeout_s=300)

The child gets a saved copy of the model and its arguments, compiles it and calls it once under a
deadline. If that succeeds, the program's own compile uses the child's cache on disk. If it fails,
the model runs eager, one warning says why, and a pack is written.

This does not protect a program from a failure that needs more than the one call (such as a later
shape, or the backward pass of a loss that is not the mean square), or that depends on the process
(such as its threads, or other work on the GPU). A model that cannot be saved, or whose class is
defined in the program itself (``__main__``), runs eager. The child needs memory for a second copy
of the model.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reprokit.core.shared import cuts

TIMEOUT_S = 300.0
SIZES = (1, 2, 4)
"""Numbers of layers for which compile time is measured, to predict that of the whole model."""

_FACTORY = """\
import sys

sys.path[:0] = {path!r}

import torch


def make():
    model, args, kwargs = torch.load({file!r}, weights_only=False)
    return {{"model": model, "calls": [(args, kwargs)], "train": {train!r}}}
"""


@dataclasses.dataclass(frozen=True)
class TrialCompile:
    """The result of a compile in a child process."""

    is_fine: bool
    why: str = ""
    """Why the compile failed or could not be tried; empty if it succeeded."""
    was_tried: bool = True
    cpu_s: float = 0.0
    """CPU seconds of the compile."""
    pack: Path | None = None


def count_parameters(model: Any) -> int:
    """Return the number of elements of all parameters; a shared parameter counts once."""
    return sum(int(p.numel()) for p in model.parameters())


def safe_compile(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    output_dir: Path | str | None = None,
    **options: Any,
) -> Any:
    """Return ``torch.compile(model, **options)``, or ``model`` with a warning if that fails.

    ``args`` and ``kwargs`` are the arguments of one call of the program. A model that cannot be
    tried in a child process is not compiled.
    """
    import torch

    trial = try_compile(model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options)
    if trial.is_fine:
        return torch.compile(model, **options)
    _warn("runs eager", trial)
    return model


def partial_compile(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    output_dir: Path | str | None = None,
    **options: Any,
) -> Any:
    """Compile the repeated layers of ``model`` one by one, in place.

    The first layer is tried with the arguments that it gets in an eager call; if that fails, the
    layers run eager. A model without repeated layers is compiled as in :func:`safe_compile`.
    """
    import torch

    from reprokit.agent.experiments.compiled_parts import repeated_layers

    layers = repeated_layers(model)
    if not layers:
        return safe_compile(
            model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
        )
    container, first = layers[0]
    layer_call = _layer_arguments(model, container[first], args, kwargs or {})
    if layer_call is None:
        _warn(
            "runs eager",
            TrialCompile(
                False, "its layers are not called in a call of the model", was_tried=False
            ),
        )
        return model
    trial = try_compile(
        container[first], *layer_call, timeout_s=timeout_s, output_dir=output_dir, **options
    )
    if not trial.is_fine:
        _warn(f"has {len(layers)} layers that run eager", trial)
        return model
    for container, index in layers:
        compiled: Any = torch.compile(container[index], **options)
        container[index] = compiled
    return model


def smart_compile(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    output_dir: Path | str | None = None,
    **options: Any,
) -> Any:
    """Compile the whole model, its layers one by one, or nothing, depending on the predicted cost.

    Copies with 1, 2 and 4 of the repeated layers are tried, and the cost of the whole model is
    predicted. If it is more than ``timeout_s`` CPU seconds, or unknown, the layers are compiled one
    by one.
    """

    from reprokit.agent.experiments.compiled_parts import repeated_layers
    from reprokit.core.growth.laws import fit_law

    layers = repeated_layers(model)
    sizes = [n for n in SIZES if n < len(layers)]
    if len(sizes) < len(SIZES):
        return safe_compile(
            model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
        )
    points = []
    for size in sizes:
        try:
            small = _keep_layers(copy.deepcopy(model), size)
        except Exception as problem:
            why = cuts.cut_head(f"the model cannot be copied with {size} layers: {problem!r}", 300)
            _warn("is compiled layer by layer", TrialCompile(False, why, was_tried=False))
            return partial_compile(
                model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
            )
        trial = try_compile(
            small, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
        )
        if not trial.is_fine:
            return partial_compile(
                model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
            )
        points.append((size, trial.cpu_s))
    law = fit_law(points, len(layers))
    if law.high <= timeout_s:
        return safe_compile(
            model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
        )
    return partial_compile(
        model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
    )


def try_compile(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    output_dir: Path | str | None = None,
    **options: Any,
) -> TrialCompile:
    """Compile and call a saved copy of ``model`` in a child process, and wait for the result.

    ``options`` are those of ``torch.compile``. Their values must be texts, numbers and the like.
    """
    import sys

    import torch

    from reprokit.core.shared.errors import BadInput
    from reprokit.host.pipeline import pipeline
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import Target
    from reprokit.host.system import compiler_cache

    with tempfile.TemporaryDirectory(prefix="reprokit-rehearsal-") as folder:
        saved, factory = Path(folder) / "model.pt", Path(folder) / "rehearsal.py"
        try:
            torch.save((model, tuple(args), dict(kwargs or {})), saved)
        except Exception as problem:
            return TrialCompile(
                False,
                cuts.cut_head(f"it cannot be saved for a trial: {problem!r}", 300),
                was_tried=False,
            )
        train = bool(getattr(model, "training", False)) and torch.is_grad_enabled()
        path = [p or "." for p in sys.path]
        factory.write_text(
            _FACTORY.format(path=path, file=str(saved), train=train), encoding="utf-8"
        )
        cache, kept = Path(folder) / "cache", compiler_cache.kept_cache_folder(sys.executable)
        compiler_cache.copy_cache(kept, cache)
        request = Request(
            Target("file", str(factory), "make"),
            python=sys.executable,
            deadline_s=timeout_s,
            compile=options,
            compares=False,
            minimizes=False,
            ablation_steps="none",
            escalate=False,
            variables={"TORCHINDUCTOR_CACHE_DIR": str(compiler_cache.plain_path(cache))},
        )
        try:
            captured = pipeline.capture_target(request, Path(folder) / "out", _ignore_message)
        except BadInput as problem:
            return TrialCompile(False, f"it cannot be tried: {problem}", was_tried=False)
        cpu_s = round(sum(captured.phases.values()), 2)
        if captured.verdict.kind == "ok":
            compiler_cache.keep_cache(cache, kept)
            _share_cache(cache)
            return TrialCompile(True, cpu_s=cpu_s)
        why = f"{captured.verdict.kind}: {captured.verdict.reason}"
        for match in captured.known()[:1]:
            why += f" {match.sentence}"
        kept = Path(
            output_dir
            or Path("reprokit-out") / f"rehearsal-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        )
        shutil.copytree(Path(folder) / "out", kept, dirs_exist_ok=True)
        return TrialCompile(
            False,
            why,
            cpu_s=cpu_s,
            pack=kept / captured.pack_path.name if captured.pack_path else None,
        )


def _share_cache(cache: Path) -> None:
    """Copy the child's compiler cache to the cache of this process."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    for path in cache.rglob("*"):
        target = Path(cache_dir()) / path.relative_to(cache)
        with contextlib.suppress(OSError):  # the entry is then compiled again
            if path.is_file() and not path.is_symlink() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                draft = target.with_name(f"{target.name}.{os.getpid()}")
                shutil.copy2(path, draft)
                draft.replace(target)


def _layer_arguments(
    model: Any, layer: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of ``layer`` in an eager call of ``model``; None if it is not called."""
    import torch

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    hook = layer.register_forward_pre_hook(lambda _, a, k: calls.append((a, k)), with_kwargs=True)
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        hook.remove()
    return calls[0] if calls else None


def _keep_layers(model: Any, count: int) -> Any:
    """Remove the repeated layers of ``model`` after the first ``count`` from it, and return it."""
    from reprokit.agent.experiments.compiled_parts import repeated_layers

    for container, index in reversed(repeated_layers(model)[count:]):
        del container[index]
    return model


def _warn(consequence: str, trial: TrialCompile) -> None:
    pack = f"; the pack is {trial.pack}" if trial.pack else ""
    reason = " ".join(trial.why.split())
    warnings.warn(f"reprokit: the model {consequence}: {reason}{pack}", stacklevel=3)


def _ignore_message(text: str) -> None:
    """Ignore a line of progress: the program only gets one warning at the end."""


__all__ = (
    "TrialCompile",
    "count_parameters",
    "partial_compile",
    "safe_compile",
    "smart_compile",
    "try_compile",
)
