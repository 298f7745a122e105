"""Build a target, compile it and call it; each stage is journaled."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..core.shared import cuts
from ..core.shared.contract import events, run_names
from ..core.shared.contract.run_spec import RunSpec
from ..core.shared.errors import BadTarget
from ..core.shared.source import entry_programs
from . import enter_compiler
from .record import journal
from .target import factory, measure, same_ranks, tensor_parallel
from .target.factory import BuiltTarget
from .torch_hooks import symbols

if TYPE_CHECKING:
    from types import ModuleType

    from .memory_meter import MemoryMeter
    from .target.hf.build_model import ModelPlan

MAX_MEMORY_SHARE = 0.8
"""The weights are real if they need at most this share of the free memory."""


ROLE = os.environ.get(run_names.RESULTS_VARIABLE, "")
"""The role of a run whose results are recorded."""


def run_spec(spec: RunSpec) -> None:
    """Run ``spec``, which is the host's spec.json; raises BadTarget for a mistake of the user."""
    with _stage("import"):
        _import_torch(spec.is_compiled)
        library = _load_transformers() if spec.kind == "hf" else None
        # a garbage collection of these modules takes a second and frees nothing
        gc.freeze()
    if spec.gpu and (problem := _simulation_problem()):
        raise BadTarget(problem)
    if not spec.every_rank or tensor_parallel.is_real():
        return _run_rank(library, spec)
    traced = {**spec.compile, "backend": tensor_parallel.trace_only}
    other_spec = dataclasses.replace(spec, compile=traced)
    again = dataclasses.replace(spec, save_artifacts="", measure_s=0)
    tensor_parallel.run_ranks(
        spec.tensor_parallel,
        lambda rank: _run_rank(library, other_spec if rank else spec),
        lambda: same_ranks.find_same_ranks(spec.tensor_parallel, lambda: _run_rank(library, again)),
    )


def _run_rank(library: ModuleType | None, spec: RunSpec) -> None:
    import torch

    if spec.calls and not spec.is_compiled:
        from ..core.shared import without_compile

        without_compile.replace_entries(torch, lambda model, options: model)
    meter = _memory_meter(spec)
    count = spec.tensor_parallel
    requested = spec.device or ("cuda" if spec.gpu else None)
    device = _check_device(tensor_parallel.device_of(requested, count) if count else requested)
    plan = _plan_model(library, spec) if library else None
    is_fake = _is_fake(spec, device, plan)
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        mesh = tensor_parallel.join_group(device or "cpu", count) if count else None
        if is_fake and (recorder := _result_recorder()):
            recorder.discard_results()
        if is_fake and not spec.gpu:  # a simulated GPU has fake tensors already
            from torch._subclasses.fake_tensor import FakeTensorMode

            from .torch_hooks import codegen_only

            codegen_only.stop_after_codegen()
            stack.enter_context(FakeTensorMode())
        with _stage("build"):
            target = _build_on_device(spec, device, plan)
            if mesh is not None:
                tensor_parallel.split_model(target.model, mesh)
        is_train = bool(spec.train or target.train)
        entry = spec.entry or target.entry or entry_programs.COMPILE
        if entry != entry_programs.COMPILE:
            _check_entry(entry, spec, is_fake, is_train)
        _journal_target(target, is_train, entry)
        options = {**target.compile, **spec.compile}
        if spec.measures_parts:
            from .timing import call_parts

            call_parts.prepare()
        is_entered = spec.is_compiled or ROLE
        compiled = (
            enter_compiler.enter_compiler(target.model, entry, options)
            if is_entered
            else target.model
        )
        run_backward = enter_compiler.backward_of_entry(
            entry if is_entered else entry_programs.COMPILE, options
        )
        # only --train requires gradients: a factory's ``train`` is a mode, and an eager run only
        # shows whether the target fails
        must_train = spec.train and (spec.is_compiled or bool(ROLE))
        if hasattr(target.model, "train"):
            target.model.train(is_train)
        if spec.load_artifacts:
            with _stage("load"):
                from .target import cache_artifacts

                cache_artifacts.load_artifacts(spec.load_artifacts)
        if spec.calls:
            with _stage("calls"):
                _sample_calls(target, compiled, is_train, run_backward, spec)
            return
        for number, (args, kwargs) in enumerate(target.calls):
            with _stage(f"call-{number}" if spec.is_compiled else f"eager-{number}"):
                try:
                    call_model(compiled, args, kwargs, is_train, run_backward, must_train)
                    if not is_fake:
                        measure.await_gpu()
                except Exception as error:
                    if is_fake and (operator := _operator_without_fake_kernel(error)):
                        raise BadTarget(
                            f"{operator} has no fake implementation, which --gpu and --weights fake"
                            " need; register one with torch.library.register_fake"
                        ) from error
                    raise
        if spec.save_artifacts:
            with _stage("save"):
                from .target import cache_artifacts

                cache_artifacts.save_artifacts(spec.save_artifacts)
        if meter is not None:
            with _stage("memory"):
                _measure_memory(
                    target, compiled, meter, spec.is_compiled, is_train, run_backward, is_fake
                )
        if spec.measure_s and not is_fake:
            with _stage("measure"):
                _measure(target, compiled, is_train, run_backward, spec)
        if mesh is not None and tensor_parallel.is_real():
            tensor_parallel.leave_group()


def _build_on_device(spec: RunSpec, device: str | None, plan: ModelPlan | None) -> BuiltTarget:
    """Build the target. What a simulated GPU cannot do is an exception of its own."""
    try:
        return build_target(spec, device, plan)
    except BadTarget as bad:
        if not spec.gpu:
            raise
        from .simulate import refuse_driver

        if bad.__cause__ is not None and refuse_driver.is_gap(bad.__cause__):
            raise bad.__cause__ from None
        raise BadTarget(f"{bad}; {_NO_VALUES}") from bad.__cause__


def _simulation_problem() -> str:
    """Return why the GPU cannot be simulated; empty if it can."""
    from . import simulate

    return simulate.problem


def _load_transformers() -> Any:
    from .target.hf import configuration

    return configuration.load_transformers()


def _plan_model(library: Any, spec: RunSpec) -> ModelPlan:
    from .target.hf import build_model

    return build_model.plan_model(library, spec.place, spec.name, spec.factory_arguments)


def _result_recorder() -> Any:
    """Return the module that records results, if a role or a probe has imported it."""
    return sys.modules.get(f"{__package__}.results.result_recorder")


_NO_VALUES = (
    "on a simulated GPU tensors have no values, and no call reaches a device; remove such calls,"
    " or run without --gpu on a machine with a GPU"
)


def _operator_without_fake_kernel(error: BaseException | None) -> str:
    """Return the operator that has no fake kernel, if that is the cause of an error."""
    while error is not None:
        if type(error).__name__ == "UnsupportedOperatorException":
            return str(getattr(error, "func", error))
        error = error.__cause__ or error.__context__
    return ""


def build_target(spec: RunSpec, device: str | None, plan: ModelPlan | None) -> BuiltTarget:
    """Build the model and its arguments on ``device``; raises BadTarget if that fails."""
    import torch

    kind, place, name = spec.kind, spec.place, spec.name
    knobs = spec.factory_arguments
    default_dtype = torch.get_default_dtype()
    with contextlib.ExitStack() as stack:
        if device:
            stack.enter_context(torch.device(device))
        if plan is not None:
            from .target.hf import build_model

            return build_model.build_model(plan)
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
            journal.write_event(events.SourceFile(file=inspect.getsourcefile(inspect.unwrap(make))))
        return factory.call_factory(make, f"{place}:{name}", knobs)


def _import_torch(imports_dynamo: bool) -> None:
    try:
        import torch
    except ImportError as problem:
        raise BadTarget(
            f"{sys.executable} cannot import torch ({problem}); install it there, or name another"
            " interpreter with --python"
        ) from problem
    if symbols.parse_version(torch.__version__) < symbols.OLDEST_TORCH:
        raise BadTarget(
            f"{sys.executable} has torch {torch.__version__}; reprokit needs 2.9 or newer"
        )
    # its import takes 1.2 CPU seconds with torch 2.13, and an eager run does not need it
    if imports_dynamo:
        import torch._dynamo


def _check_device(name: str | None) -> str | None:
    """Return ``name``; raises BadTarget if torch cannot use this device here."""
    import torch

    if name is None:
        return None
    try:
        device = torch.device(name)
    except RuntimeError as problem:
        raise BadTarget(f"--device {name}: torch has no such device") from problem
    if device.type == "meta":
        raise BadTarget(
            "--device meta computes nothing, so the compiler gets no real graph; use --weights fake"
        )
    if device.type != "cpu":
        backend = getattr(torch, device.type, None)
        if backend is None or not backend.is_available():
            raise BadTarget(
                f"--device {name}: this torch sees no such device here; leave the option out to use"
                " the available device"
            )
    return name


def _is_fake(spec: RunSpec, device: str | None, plan: ModelPlan | None) -> bool:
    """Decide between real and fake tensors, and journal the decision."""
    import torch

    weights = "fake" if spec.gpu else spec.weights
    if weights != "auto":
        why = "the GPU is simulated" if spec.gpu else f"--weights {weights}"
        journal.write_event(events.Weights(kind=weights, why=why))
        return weights == "fake"
    if plan is not None:
        from .target.hf import build_model

        needed = build_model.needed_bytes(plan, spec.train)
    elif spec.kind == "zoo":
        from ..core.shared import zoo

        entry = zoo.ZOO[spec.name]
        needed = zoo.needed_bytes(entry, {**entry.knobs, **spec.factory_arguments}, spec.train)
    else:
        journal.write_event(
            events.Weights(kind="real", why="the factory decides what it allocates")
        )
        return False
    if needed is None:
        journal.write_event(
            events.Weights(kind="real", why="its parameters cannot be counted before it is built")
        )
        return False
    on_gpu = device is not None and device.startswith("cuda")
    free = torch.cuda.mem_get_info()[0] if on_gpu else measure.free_bytes()
    is_fake = needed > MAX_MEMORY_SHARE * free
    fit = "do not fit in" if is_fake else "fit in"
    why = (
        f"real tensors need about {needed / 1e9:.1f} GB and {fit} the {free / 1e9:.1f} GB that are"
        " free"
    )
    journal.write_event(events.Weights(kind="fake" if is_fake else "real", why=why))
    return is_fake


def _check_entry(entry: str, spec: RunSpec, is_fake: bool, is_train: bool) -> None:
    """Raise BadTarget if the compiler cannot be entered in this way with these options."""
    if is_fake and entry in entry_programs.AT_ONCE:
        raise BadTarget(f"the entry {entry} needs real tensors, and the weights are fake")
    if spec.tensor_parallel:
        raise BadTarget(f"--tensor-parallel-gpus cannot be used with the entry {entry}")
    if is_train and entry == entry_programs.AOTINDUCTOR:
        raise BadTarget(f"the entry {entry} compiles no backward, so it cannot be used to train")
    if not is_train and entry == entry_programs.COMPILED_AUTOGRAD:
        raise BadTarget(f"the entry {entry} compiles the backward, so it needs --train")


def _journal_target(target: BuiltTarget, is_train: bool, entry: str) -> None:
    import torch

    model = target.model
    parameters = model.parameters() if isinstance(model, torch.nn.Module) else ()
    journal.write_event(
        events.TargetBuilt(
            form=target.form,
            is_module=isinstance(model, torch.nn.Module),
            train=is_train,
            parameters=sum(p.numel() for p in parameters),
            compile={k: v for k, v in target.compile.items() if isinstance(v, (str, bool))},
            entry=entry,
        )
    )


def call_model(
    model: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_train: bool,
    run_backward: Callable[[Any], object],
    must_train: bool = False,
) -> None:
    """Call the model once, and in training run backward if an output requires a gradient.

    Raises BadTarget with ``must_train`` if no output does.
    """
    import torch

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
    loss: Any = sum(
        t.float().pow(2).mean() if not t.is_complex() else t.abs().pow(2).mean() for t in floats
    )
    run_backward(loss)


def _sample_calls(
    target: BuiltTarget,
    model: Callable[..., Any],
    is_train: bool,
    run_backward: Callable[[Any], object],
    spec: RunSpec,
) -> None:
    """Call the model ``spec.calls`` times, with the arguments of all calls in turn, and journal
    what the process holds.
    """
    from .target import call_samples

    def call(number: int) -> None:
        args, kwargs = target.calls[number % len(target.calls)]
        call_model(model, args, kwargs, is_train, run_backward)
        measure.await_gpu()

    call_samples.sample_calls(call, spec.calls, len(target.calls), spec.is_compiled)


def _measure(
    target: BuiltTarget,
    compiled: Callable[..., Any],
    is_train: bool,
    run_backward: Callable[[Any], object],
    spec: RunSpec,
) -> None:
    """Time all calls, eager and compiled, after the end of the recording of results."""
    import torch

    from .timing import call_parts, call_times

    if recorder := _result_recorder():
        recorder.finish_recording()

    def side_of(model: Callable[..., Any], stance: str) -> call_times.Side:
        def make_calls() -> None:
            for args, kwargs in target.calls:
                if is_train:
                    call_model(model, args, kwargs, is_train, run_backward)
                else:
                    model(*args, **kwargs)

        @contextlib.contextmanager
        def surrounding() -> Iterator[None]:
            # layers may be compiled in place, so only the stance makes a call eager
            with torch.compiler.set_stance(stance), torch.set_grad_enabled(is_train):
                yield

        return call_times.Side(make_calls, surrounding)

    eager, timed = side_of(target.model, "force_eager"), side_of(compiled, "default")
    call_times.time_calls(eager, timed, spec.measure_s)
    if spec.measures_parts:
        call_parts.measure_parts(eager, timed)


def _memory_meter(spec: RunSpec) -> MemoryMeter | None:
    if not spec.measures_memory:
        return None
    from .memory_meter import MemoryMeter

    return MemoryMeter()


def _measure_memory(
    target: BuiltTarget,
    compiled: Callable[..., Any],
    meter: MemoryMeter,
    is_compiled: bool,
    is_train: bool,
    run_backward: Callable[[Any], object],
    is_fake: bool,
) -> None:
    """Measure the memory of all calls once more, after the end of the recording of results."""
    import torch

    if recorder := _result_recorder():
        recorder.finish_recording()
    model = target.model
    parameters = [*model.parameters()] if isinstance(model, torch.nn.Module) else []
    buffers = [*model.buffers()] if isinstance(model, torch.nn.Module) else []
    inputs = [
        leaf
        for leaf in torch.utils._pytree.tree_leaves(target.calls)
        if isinstance(leaf, torch.Tensor)
    ]

    def make_calls(mark_backward: Callable[[Callable[[], object]], None]) -> None:
        for tensor in (*parameters, *inputs):
            tensor.grad = None
        for args, kwargs in target.calls:
            call_model(
                compiled if is_compiled else model,
                args,
                kwargs,
                is_train,
                lambda loss: mark_backward(lambda: run_backward(loss)),
            )

    stance = "default" if is_compiled else "force_eager"  # layers may be compiled in place
    gc.collect()
    try:
        with torch.compiler.set_stance(stance):
            meter.measure(make_calls, (parameters, buffers, inputs), is_fake)
    except Exception as problem:  # the run itself has ended well
        journal.write_event(
            events.AgentProblem(hook="memory", problem=cuts.cut_head(repr(problem), 500))
        )


@contextlib.contextmanager
def _stage(name: str) -> Iterator[None]:
    journal.write_event(
        events.Begin(name=f"stage:{name}", cid=None, cpu=round(time.process_time(), 4))
    )
    yield
    # not in a finally: an open stage shows where an exception was raised
    journal.write_event(events.End(name=f"stage:{name}", cpu=round(time.process_time(), 4)))
