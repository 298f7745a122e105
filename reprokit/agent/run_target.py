"""Build a target, compile it and make its calls, each step between two lines of the journal."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import inspect
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core.shared import cuts
from ..core.shared.contract import events, run_names
from ..core.shared.contract.run_spec import RunSpec
from ..core.shared.errors import BadTarget
from .record import journal
from .target import factory, measure, tensor_parallel
from .target.factory import BuiltTarget
from .torch_hooks import phases_and_graphs

if TYPE_CHECKING:
    from .target.hf.build_model import ModelPlan

FREE_SHARE = 0.8
"""Real weights are taken when they need less than this share of the free memory."""


ROLE = os.environ.get(run_names.RESULTS_VARIABLE, "")
"""The role of a run whose results are recorded."""


def run_spec(spec: RunSpec) -> None:
    """Run ``spec`` (the host's spec.json); raises BadTarget for what the user must change."""
    with _stage("import"):
        torch = _import_torch()
        library = _transformers() if spec.kind == "hf" else None
        # nothing here is the target's, and looking through it, at the end above all, costs a second
        gc.freeze()
    if spec.gpu and (problem := _simulation_problem()):
        raise BadTarget(problem)
    if not spec.every_rank or tensor_parallel.is_real():
        return _run(torch, library, spec)
    with tensor_parallel.ranks(spec.tensor_parallel) as rank:
        traced = {**spec.compile, "backend": tensor_parallel.trace_only}
        _run(torch, library, spec if rank == 0 else dataclasses.replace(spec, compile=traced))


def _run(torch: Any, library: Any, spec: RunSpec) -> None:
    count = spec.tensor_parallel
    wanted = spec.device or ("cuda" if spec.gpu else None)
    device = _device(torch, tensor_parallel.device_of(torch, wanted, count) if count else wanted)
    plan = _plan(library, spec) if library else None
    is_fake = _is_fake(torch, spec, device, plan)
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        mesh = tensor_parallel.join_group(torch, device or "cpu", count) if count else None
        if is_fake and (recorder := _recorder()):
            recorder.discard_results()
        if is_fake and not spec.gpu:  # which is simulated in fake tensors already
            from torch._subclasses.fake_tensor import FakeTensorMode

            from .torch_hooks import codegen_only

            codegen_only.stop_after_codegen()
            stack.enter_context(FakeTensorMode())
        with _stage("build"):
            try:
                target = build_target(torch, spec, device, plan)
            except BadTarget as bad:
                if not spec.gpu:
                    raise
                from .simulate import refuse_driver

                if bad.__cause__ is not None and refuse_driver.is_gap(bad.__cause__):
                    raise bad.__cause__ from None
                raise BadTarget(f"{bad}; {_NO_VALUES}") from bad.__cause__
            if mesh is not None:
                tensor_parallel.split_model(torch, target.model, mesh)
        _describe(torch, target, bool(spec.train or target.train))
        compiled = _compile(torch, target, spec) if spec.is_compiled or ROLE else target.model
        is_train = bool(spec.train or target.train)
        # only --train demands gradients: a factory's ``train`` is a mode, and an eager run only
        # shows whether it fails
        must_train = spec.train and (spec.is_compiled or bool(ROLE))
        if hasattr(target.model, "train"):
            target.model.train(is_train)
        for number, (args, kwargs) in enumerate(target.calls):
            with _stage(f"call-{number}" if spec.is_compiled else f"eager-{number}"):
                try:
                    _call(torch, compiled, args, kwargs, is_train, must_train)
                except Exception as error:
                    if is_fake and (operator := _without_fake(error)):
                        raise BadTarget(
                            f"{operator} has no fake implementation, which --gpu and --weights fake"
                            " need: give it one with torch.library.register_fake"
                        ) from error
                    raise
        if spec.measure_s and not is_fake:
            with _stage("measure"):
                _measure(torch, target, compiled, is_train, spec.measure_s)
        if mesh is not None and tensor_parallel.is_real():
            tensor_parallel.leave_group()


def _simulation_problem() -> str:
    """Why the GPU cannot be simulated; empty where it is."""
    from . import simulate

    return simulate.problem


def _transformers() -> Any:
    from .target.hf import configuration

    return configuration.load_transformers()


def _plan(library: Any, spec: RunSpec) -> ModelPlan:
    from .target.hf import build_model

    return build_model.plan_model(library, spec.place, spec.name, spec.given)


def _recorder() -> Any:
    """The module that records results, where a role or a probe has imported it."""
    return sys.modules.get(f"{__package__}.results.result_recorder")


_NO_VALUES = (
    "on a simulated GPU tensors hold no values, and no call reaches a device: leave such calls out,"
    " or run without --gpu where there is one"
)


def _without_fake(error: BaseException | None) -> str:
    """The operator that cannot be called on a fake tensor, where that is what an error comes
    from.
    """
    while error is not None:
        if type(error).__name__ == "UnsupportedOperatorException":
            return str(getattr(error, "func", error))
        error = error.__cause__ or error.__context__
    return ""


def build_target(
    torch: Any, spec: RunSpec, device: str | None, plan: ModelPlan | None
) -> BuiltTarget:
    """Make the model and its arguments, on ``device`` and with the knobs that were given."""
    kind, place, name = spec.kind, spec.place, spec.name
    knobs = spec.given
    default_dtype = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        if device:
            stack.enter_context(torch.device(device))
        if plan is not None:
            from .target.hf import build_model

            return build_model.build_model(torch, plan)
        if kind == "zoo":
            from ..core.shared import zoo

            entry = zoo.ZOO[name]
            knobs = {**entry.knobs, **knobs}
            make = importlib.import_module(f"..models.{entry.source}", __name__).make
            torch.set_default_dtype(getattr(torch, knobs.pop("dtype")))
            stack.callback(torch.set_default_dtype, default_dtype)
            return factory.call_factory(make, name, knobs)
        if "dtype" in knobs:
            knobs["dtype"] = getattr(torch, knobs["dtype"])
        make = factory.find_factory(kind, place, name)
        with contextlib.suppress(TypeError):
            journal.write(events.SourceFile(file=inspect.getsourcefile(inspect.unwrap(make))))
        return factory.call_factory(make, f"{place}:{name}", knobs)


def _import_torch() -> Any:
    import sys

    try:
        import torch
    except ImportError as problem:
        raise BadTarget(
            f"{sys.executable} cannot import torch ({problem}); install it there, or name another"
            " interpreter with --python"
        ) from problem
    if phases_and_graphs.version_of(torch.__version__) < phases_and_graphs.OLDEST_TORCH:
        raise BadTarget(
            f"{sys.executable} has torch {torch.__version__}; reprokit needs 2.9 or newer"
        )
    import torch._dynamo

    return torch


def _device(torch: Any, wanted: str | None) -> str | None:
    if wanted is None:
        return None
    try:
        device = torch.device(wanted)
    except RuntimeError as problem:
        raise BadTarget(f"--device {wanted}: torch knows no such device") from problem
    if device.type == "meta":
        raise BadTarget(
            "--device meta computes nothing, so the compiler sees no real graph; use --weights fake"
        )
    if device.type != "cpu":
        backend = getattr(torch, device.type, None)
        if backend is None or not backend.is_available():
            raise BadTarget(
                f"--device {wanted}: this torch sees no such device here; leave the flag out to use"
                " what there is"
            )
    return wanted


def _is_fake(torch: Any, spec: RunSpec, device: str | None, plan: ModelPlan | None) -> bool:
    """Decide between real and fake tensors, and say so in the journal."""
    wanted = "fake" if spec.gpu else spec.weights
    if wanted != "auto":
        why = "the GPU is simulated" if spec.gpu else f"--weights {wanted}"
        journal.write(events.Weights(kind=wanted, why=why))
        return bool(wanted == "fake")
    if plan is not None:
        from .target.hf import build_model

        needed = build_model.needed_bytes(torch, plan, spec.train)
    elif spec.kind == "zoo":
        from ..core.shared import zoo

        entry = zoo.ZOO[spec.name]
        needed = zoo.needed_bytes(entry, {**entry.knobs, **spec.given}, spec.train)
    else:
        journal.write(events.Weights(kind="real", why="the factory decides what it allocates"))
        return False
    if needed is None:
        journal.write(
            events.Weights(kind="real", why="its parameters cannot be counted before it is built")
        )
        return False
    on_gpu = device is not None and device.startswith("cuda")
    free = torch.cuda.mem_get_info()[0] if on_gpu else measure.free_bytes()
    is_fake = needed > FREE_SHARE * free
    says = "do not fit in" if is_fake else "fit in"
    why = (
        f"real tensors need about {needed / 1e9:.1f} GB and {says} the {free / 1e9:.1f} GB that are"
        " free"
    )
    journal.write(events.Weights(kind="fake" if is_fake else "real", why=why))
    return is_fake


def _describe(torch: Any, target: BuiltTarget, is_train: bool) -> None:
    is_module = isinstance(target.model, torch.nn.Module)
    parameters = target.model.parameters() if is_module else ()  # type: ignore[attr-defined]
    count = sum(p.numel() for p in parameters)
    plain = {k: v for k, v in target.compile.items() if isinstance(v, (str, bool))}
    journal.write(
        events.TargetBuilt(
            form=target.form, is_module=is_module, train=is_train, parameters=count, compile=plain
        )
    )


def _compile(torch: Any, target: BuiltTarget, spec: RunSpec) -> Any:
    options = {**target.compile, **spec.compile}
    try:
        return torch.compile(target.model, **options)
    except Exception as problem:
        text = cuts.cut_head(" ".join(str(problem).split()), 300)
        raise BadTarget(
            f"torch.compile refused {options}: {type(problem).__name__}: {text}"
        ) from problem


def _call(
    torch: Any,
    model: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_train: bool,
    must_train: bool = False,
) -> None:
    """Call the model once, and run backward where an output requires a gradient."""
    if not is_train:
        with torch.no_grad():
            model(*args, **kwargs)
        return
    out = model(*args, **kwargs)
    floats = [
        t
        for t in torch.utils._pytree.tree_leaves(out)
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not floats:
        if must_train:
            raise BadTarget(
                "--train: no output of the model requires a gradient, so there is nothing to run"
                " backward"
            )
        return
    loss = sum(
        t.float().pow(2).mean() if not t.is_complex() else t.abs().pow(2).mean() for t in floats
    )
    loss.backward()


def _measure(
    torch: Any, target: BuiltTarget, compiled: Any, is_train: bool, budget_s: float
) -> None:
    """Time all calls, eager and compiled; what was recorded for a comparison is complete."""
    if recorder := _recorder():
        recorder.finish_recording()

    def pass_over(model: Any) -> None:
        for args, kwargs in target.calls:
            _call(torch, model, args, kwargs, is_train)

    def in_eager() -> None:
        with torch.compiler.set_stance("force_eager"):  # its layers may be compiled in place
            pass_over(target.model)

    measure.time_calls(torch, in_eager, lambda: pass_over(compiled), budget_s)


@contextlib.contextmanager
def _stage(name: str) -> Iterator[None]:
    journal.write(events.Begin(name=f"stage:{name}", cid=None, cpu=round(time.process_time(), 4)))
    yield
    # not in a finally: a stage that an exception left stays open, and says where it happened
    journal.write(events.End(name=f"stage:{name}", cpu=round(time.process_time(), 4)))
