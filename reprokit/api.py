"""``torch.compile`` for programs that must go on: a compile is rehearsed in a watched child before
the program trusts it.

    from reprokit.api import safe_compile
    model = safe_compile(model, args, timeout_s=300)

The child gets a saved copy of the model and its arguments, compiles and calls it once under a
deadline, and what it put into the compiler's cache on disk is shared when it went well, so that the
program's own compile finds its work done. Where the rehearsal fails the model runs eager, one
warning says why, and a pack is left.

What this cannot isolate: a failure that needs more than that one call (a later shape, a backward
pass of a loss that is not the mean square), a model that cannot be saved or whose class stands in
the program itself (``__main__``), what differs between the child's process and this one (threads,
other work on the GPU), and the memory that a second copy takes.
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
"""Layers of the models whose compile time is measured before the whole one's is predicted."""

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
    """How a compile went in the child."""

    is_fine: bool
    why: str = ""
    """What went wrong, or why nothing could be tried; empty when it went well."""
    was_tried: bool = True
    cpu_s: float = 0.0
    """Processor seconds of the compile."""
    pack: Path | None = None


def count_parameters(model: Any) -> int:
    """The number of elements of all parameters; a parameter that two modules share counts once."""
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
    """Give ``torch.compile(model, **options)``, or ``model`` itself with a warning where the
    rehearsal failed.

    ``args`` and ``kwargs`` are those of one call, as the program will make it. A model that cannot
    be rehearsed is not compiled either.
    """
    import torch

    found = rehearse(model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options)
    if found.is_fine:
        return torch.compile(model, **options)
    _warn("runs eager", found)
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
    """Compile the repeated layers of ``model`` one by one, in place; a kind of layer that fails
    stays eager.

    One layer of each kind is rehearsed with the arguments that it gets in an eager call. A model
    without repeated layers is compiled as a whole, as :func:`safe_compile` does.
    """
    import torch

    from reprokit.agent.experiments.compiled_parts import layers_of

    places = layers_of(torch, model)
    if not places:
        return safe_compile(
            model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
        )
    owner, first = places[0]
    given = _arguments(torch, model, owner[first], args, kwargs or {})
    if given is None:
        _warn(
            "runs eager",
            TrialCompile(
                False, "its layers are not called in a call of the model", was_tried=False
            ),
        )
        return model
    found = rehearse(owner[first], *given, timeout_s=timeout_s, output_dir=output_dir, **options)
    if not found.is_fine:
        _warn(f"has {len(places)} layers that run eager", found)
        return model
    for owner, place in places:
        owner[place] = torch.compile(owner[place], **options)
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
    """Compile the whole model, its layers one by one, or nothing, by what compiling a few layers
    has cost.

    Copies with 1, 2 and 4 of the repeated layers are rehearsed, and the cost of all of them is
    predicted. Where that is beyond ``timeout_s`` processor seconds, or cannot be told, the layers
    are compiled one by one.
    """
    import torch

    from reprokit.agent.experiments.compiled_parts import layers_of
    from reprokit.core.growth.laws import fit_law

    places = layers_of(torch, model)
    sizes = [n for n in SIZES if n < len(places)]
    if len(sizes) < len(SIZES):
        return safe_compile(
            model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
        )
    points = []
    for size in sizes:
        try:
            small = _with_layers(torch, copy.deepcopy(model), size)
        except Exception as problem:
            why = cuts.cut_head(f"a copy with {size} layers cannot be made: {problem!r}", 300)
            _warn("is compiled layer by layer", TrialCompile(False, why, was_tried=False))
            return partial_compile(
                model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
            )
        found = rehearse(small, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options)
        if not found.is_fine:
            return partial_compile(
                model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
            )
        points.append((size, found.cpu_s))
    told = fit_law(points, len(places))
    if told.high <= timeout_s:
        return safe_compile(
            model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
        )
    return partial_compile(
        model, args, kwargs, timeout_s=timeout_s, output_dir=output_dir, **options
    )


def rehearse(
    model: Any,
    args: Sequence[Any] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    output_dir: Path | str | None = None,
    **options: Any,
) -> TrialCompile:
    """Compile and call a saved copy of ``model`` in a watched child; this process only waits.

    ``options`` are those of ``torch.compile`` and must be words, numbers and the like.
    """
    import sys

    import torch

    from reprokit.core.shared.errors import BadInput
    from reprokit.host.pipeline import pipeline
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import Target

    with tempfile.TemporaryDirectory(prefix="reprokit-rehearsal-") as folder:
        saved, factory = Path(folder) / "model.pt", Path(folder) / "rehearsal.py"
        try:
            torch.save((model, tuple(args), dict(kwargs or {})), saved)
        except Exception as problem:
            return TrialCompile(
                False,
                cuts.cut_head(f"it cannot be saved for a rehearsal: {problem!r}", 300),
                was_tried=False,
            )
        train = bool(getattr(model, "training", False)) and torch.is_grad_enabled()
        path = [p or "." for p in sys.path]
        factory.write_text(
            _FACTORY.format(path=path, file=str(saved), train=train), encoding="utf-8"
        )
        request = Request(
            Target("file", str(factory), "make"),
            python=sys.executable,
            deadline_s=timeout_s,
            compile=options,
            compares=False,
            minimizes=False,
            rungs="none",
            escalate=False,
            variables={"TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "cache")},
        )
        try:
            captured = pipeline.capture(request, Path(folder) / "out", _unsaid)
        except BadInput as problem:
            return TrialCompile(False, f"it cannot be rehearsed: {problem}", was_tried=False)
        cpu_s = round(sum(captured.phases.values()), 2)
        if captured.verdict.kind == "ok":
            _share(Path(folder) / "cache")
            return TrialCompile(True, cpu_s=cpu_s)
        why = f"{captured.verdict.kind}: {captured.verdict.reason}"
        place = Path(
            output_dir
            or Path("reprokit-out") / f"rehearsal-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        )
        shutil.copytree(Path(folder) / "out", place, dirs_exist_ok=True)
        return TrialCompile(
            False,
            why,
            cpu_s=cpu_s,
            pack=place / captured.pack_path.name if captured.pack_path else None,
        )


def _share(cache: Path) -> None:
    """Put what the child compiled where this process' own compile looks; of a child that was killed
    nothing is taken.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    for path in cache.rglob("*"):
        place = Path(cache_dir()) / path.relative_to(cache)
        with contextlib.suppress(OSError):  # then it is compiled once more
            if path.is_file() and not path.is_symlink() and not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                draft = place.with_name(f"{place.name}.{os.getpid()}")
                shutil.copy2(path, draft)
                draft.replace(place)


def _arguments(
    torch: Any, model: Any, layer: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """What ``layer`` is called with in an eager call of ``model``; None when it is not."""
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    hook = layer.register_forward_pre_hook(lambda _, a, k: seen.append((a, k)), with_kwargs=True)
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    finally:
        hook.remove()
    return seen[0] if seen else None


def _with_layers(torch: Any, model: Any, count: int) -> Any:
    """``model`` with the first ``count`` of its repeated layers."""
    from reprokit.agent.experiments.compiled_parts import layers_of

    for owner, place in reversed(layers_of(torch, model)[count:]):
        del owner[place]
    return model


def _warn(then: str, found: TrialCompile) -> None:
    pack = f"; the pack is {found.pack}" if found.pack else ""
    warnings.warn(f"reprokit: the model {then}: {' '.join(found.why.split())}{pack}", stacklevel=3)


def _unsaid(text: str) -> None:
    """A program in production is told one line, at the end."""


__all__ = (
    "TrialCompile",
    "count_parameters",
    "partial_compile",
    "rehearse",
    "safe_compile",
    "smart_compile",
)
