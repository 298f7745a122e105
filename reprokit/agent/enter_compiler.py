"""Enter the compiler in one of its ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.shared import cuts
from ..core.shared.errors import BadTarget
from ..core.shared.source import entry_programs


class EntryFunctions(NamedTuple):
    """The functions of torch that enter the compiler."""

    compile: Callable[..., Any]
    export: Callable[..., Any]
    package: Callable[..., Any]
    load: Callable[..., Any]


def current_functions() -> EntryFunctions:
    """Return the functions of this process, which may have been replaced."""
    import torch

    inductor: Any = torch._inductor
    return EntryFunctions(
        torch.compile,
        torch.export.export,
        inductor.aoti_compile_and_package,
        inductor.aoti_load_package,
    )


def enter_compiler(
    model: Callable[..., Any],
    entry: str,
    options: dict[str, Any],
    functions: EntryFunctions | None = None,
) -> Callable[..., Any]:
    """Return a callable that runs ``model`` compiled.

    ``options`` are the arguments of torch.compile. An entry that compiles for given arguments does
    so at the first call with arguments of these shapes and types. Raises BadTarget for options that
    the entry or torch does not accept.
    """
    import torch

    is_module = isinstance(model, torch.nn.Module)
    compile = functions.compile if functions else torch.compile
    if entry in entry_programs.WITHOUT_DYNAMO:
        unused = [name for name in options if name != "options" or entry == entry_programs.EXPORT]
        _refuse_options(entry, unused)
        return _AheadOfTime(model, _exporter(entry, options, functions))
    if entry == entry_programs.STANDALONE:
        _refuse_options(entry, [n for n in options if n in ("mode", "backend", "options")])
        options = {**options, "backend": standalone}
    if entry == entry_programs.COMPILED_AUTOGRAD:
        import torch._dynamo

        torch._dynamo.config.compiled_autograd = True
    if entry == entry_programs.MODULE_COMPILE:
        if not is_module:
            raise BadTarget(f"the model is no torch.nn.Module, which the entry {entry} needs")
        _try(lambda: model.compile(**options), entry, options)  # type: ignore[attr-defined]
        return model
    if entry == entry_programs.AOT_COMPILE:
        import torch._dynamo

        torch._dynamo.config.enable_aot_compile = True  # torch 2.9 has it off
        options = {**options, "fullgraph": True}
    compiled: Any = _try(lambda: compile(model, **options), entry, options)
    if entry != entry_programs.AOT_COMPILE:
        return compiled  # type: ignore[no-any-return]

    def compile_for(model: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
        if not is_module:
            return compiled.aot_compile((args, kwargs))  # type: ignore[no-any-return]
        function = compiled.forward.aot_compile((args, kwargs))
        return lambda *given, **named: function(model, *given, **named)

    return _AheadOfTime(model, compile_for)


def backward_of_entry(entry: str, options: dict[str, Any]) -> Callable[[Any], Any]:
    """Return the function that runs the backward of a loss.

    Compiled autograd is on only while a compiled function runs, so there the backward is called
    in one, as the documentation of torch does.
    """
    import torch

    if entry != entry_programs.COMPILED_AUTOGRAD:
        return torch.Tensor.backward
    return lambda loss: torch.compile(lambda: loss.backward(), **options)()


def standalone(graph: Any, inputs: Any) -> Any:
    """Compile a graph with ``standalone_compile``, as a backend of torch.compile."""
    import torch

    inductor: Any = torch._inductor
    return inductor.standalone_compile(graph, inputs, dynamic_shapes="from_graph")


standalone.reprokit_entry = entry_programs.STANDALONE  # type: ignore[attr-defined]


def _exporter(
    entry: str, options: dict[str, Any], functions: EntryFunctions | None
) -> Callable[[Any, Any, Any], Callable[..., Any]]:
    def export(model: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
        import torch

        if not isinstance(model, torch.nn.Module):
            module = torch.nn.Module()
            module.forward, model = model, module
        program = (functions.export if functions else torch.export.export)(model, args, kwargs)
        if entry == entry_programs.EXPORT:
            return program.module()
        configs = options.get("options")
        # a recorder replaces them when the program exports a model
        own = functions or current_functions()
        return own.load(own.package(program, inductor_configs=configs))  # type: ignore[no-any-return]

    return export


class _AheadOfTime:
    """A model that is compiled at the first call with arguments of some shapes and types."""

    def __init__(
        self, model: Any, compile_for: Callable[[Any, Any, Any], Callable[..., Any]]
    ) -> None:
        self._model, self._compile_for = model, compile_for
        self._compiled: dict[object, Callable[..., Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        key = _key((args, kwargs))
        if key not in self._compiled:
            self._compiled[key] = self._compile_for(self._model, args, kwargs)
        return self._compiled[key](*args, **kwargs)


def _key(arguments: Any) -> object:
    import torch

    leaves, spec = torch.utils._pytree.tree_flatten(arguments)
    return str(spec), tuple(
        (tuple(leaf.shape), leaf.dtype, leaf.device)
        if isinstance(leaf, torch.Tensor)
        else repr(leaf)
        for leaf in leaves
    )


def _refuse_options(entry: str, names: list[str]) -> None:
    if names:
        raise BadTarget(f"the entry {entry} takes no {', '.join(sorted(names))}")


def _try(step: Callable[[], Any], entry: str, options: dict[str, Any]) -> Any:
    try:
        return step()
    except Exception as problem:
        text = cuts.cut_head(" ".join(str(problem).split()), 300)
        raise BadTarget(f"{entry} refused {options}: {type(problem).__name__}: {text}") from problem
