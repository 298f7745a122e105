"""Hooks on Dynamo and Inductor: phases, traced lines, lowered nodes, graphs, failures, calls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...core.shared.contract import events
from ...core.shared.source import entry_programs
from ...core.shared.tracebacks import name_of_function
from ..record import compile_settings, exceptions, graph_recorder, journal, nodes_at_work
from . import recompile_hooks, torch_logs
from .symbols import compile_id, wrap_function, wrap_symbol

if TYPE_CHECKING:
    import torch

BEFORE_COMPILE: list[Callable[[], None]] = []
"""Functions that Dynamo's entry point calls before each compile."""
PROGRESS_INTERVAL_S = 0.5
"""At most one traced line or lowered node is journaled in this time."""
_is_excluded = False
"""Whether Dynamo skips the functions of the agent. Each addition compiles a large expression."""


def exclude_agent() -> None:
    """Keep Dynamo from compiling functions of the agent.

    After a graph break the program calls some of them, for example when it shows a warning.
    """
    global _is_excluded
    if _is_excluded:  # the server did it before it forked this process
        return
    from torch._dynamo import trace_rules

    package = __package__.split(".")[0]
    for name in ("core", "agent.import_hook", "agent.record", "agent.torch_hooks"):
        trace_rules.add(f"{package}.{name}")
    _is_excluded = True


def skip_guard_timing() -> None:
    """Keep Dynamo from timing each set of guards that it builds, which nothing in a probe reads.

    It writes 32 MiB before, to empty the caches of the processor. In a forked child this copies
    all of these pages, and takes a third of the CPU time of a small compile (torch 2.13).
    """
    from torch._dynamo import guards

    wrap_function(guards, "profile_guard_manager", lambda real: lambda *_: 0.0)


def hook_phases() -> None:
    """Journal the begin and the end of each phase."""

    def hook_start(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_event_start(self: Any, event_name: str, *args: Any, **kwargs: Any) -> Any:
            torch_logs.listen_to_logs()
            result = real(self, event_name, *args, **kwargs)
            journal.start_heartbeat()
            journal.write_event(
                events.Begin(name=event_name, cid=compile_id(), cpu=round(time.process_time(), 4))
            )
            return result

        return log_event_start

    def hook_end(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_event_end(self: Any, event_name: str, *args: Any, **kwargs: Any) -> Any:
            result = real(self, event_name, *args, **kwargs)
            journal.write_event(events.End(name=event_name, cpu=round(time.process_time(), 4)))
            return result

        return log_event_end

    wrap_symbol("torch._dynamo.utils:ChromiumEventLogger.log_event_start", hook_start)
    wrap_symbol("torch._dynamo.utils:ChromiumEventLogger.log_event_end", hook_end)


class _Progress:
    """Write each step to the current-activity record, and one step per interval to the journal."""

    def __init__(self, unit: str) -> None:
        self.unit, self.count, self._next = unit, 0, 0.0

    def note_step(self, where: str, repeats: int = 0, repeated: str = "") -> None:
        self.count += 1
        journal.write_now(self.unit, where, repeats, repeated)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_INTERVAL_S
            journal.write_event(events.Progress(unit=self.unit, count=self.count, where=where))


def hook_lines() -> None:
    """Record each user line that Dynamo traces, and how many times one frame has traced a line.

    The count is the largest of the traced frame and of the frames that called it. A function that
    many layers call therefore does not count as a loop, and a loop that calls functions does.
    """
    progress = _Progress("line")

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def starts_line(self: Any, lineno: int) -> Any:
            where = f"{self.f_code.co_filename}:{lineno} in {name_of_function(self.f_code.co_name)}"
            counts = self.__dict__.setdefault("_reprokit_counts", {})
            counts[lineno] = count = counts.get(lineno, 0) + 1
            most = max(
                (count, where), getattr(getattr(self, "parent", None), "_reprokit_most", (0, ""))
            )
            self._reprokit_most = most
            progress.note_step(where, *most)
            return real(self, lineno)

        return starts_line

    wrap_symbol("torch._dynamo.symbolic_convert:InstructionTranslatorBase.starts_line", make_hook)


def hook_nodes() -> None:
    """Record each graph node that Inductor lowers."""
    progress = _Progress("node")

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def run_node(self: Any, n: torch.fx.Node) -> Any:
            progress.note_step(f"node {n.name} ({n.target})"[:300])
            return real(self, n)

        return run_node

    wrap_symbol("torch._inductor.graph:GraphLowering.run_node", make_hook)


def hook_graphs() -> None:
    """Record each graph that Dynamo passes to a backend."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def _call_user_compiler(
            self: Any, gm: torch.fx.GraphModule, example_inputs: Any, *args: Any, **kwargs: Any
        ) -> Any:
            graph_recorder.traced_code.update(getattr(self, "traced_code", ()))
            number = graph_recorder.record_graph(
                gm, example_inputs, "dynamo", compile_id(), False, compiler_fn=self.compiler_fn
            )
            result = real(self, gm, example_inputs, *args, **kwargs)
            journal.write_event(events.GraphDone(n=number))
            return result

        return _call_user_compiler

    wrap_symbol("torch._dynamo.output_graph:OutputGraph._call_user_compiler", make_hook)


def hook_aten_graphs() -> None:
    """Record each ATen graph that Inductor compiles."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def _compile_fx_inner(
            gm: torch.fx.GraphModule, example_inputs: Any, *args: Any, **kwargs: Any
        ) -> Any:
            backward = bool(kwargs.get("is_backward"))
            number = graph_recorder.record_graph(
                gm, example_inputs, level="aten", cid=compile_id(), is_backward=backward
            )
            graph_recorder.current = number
            result = real(gm, example_inputs, *args, **kwargs)
            journal.write_event(events.GraphDone(n=number))
            return result

        return _compile_fx_inner

    wrap_symbol("torch._inductor.compile_fx:_compile_fx_inner", make_hook)


def hook_exported_graphs() -> None:
    """Record each exported graph that AOTInductor compiles, and journal the exception that ends the
    compile.
    """

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def compile_fx_aot(
            model_: torch.fx.GraphModule, example_inputs_: Any, *args: Any, **kwargs: Any
        ) -> Any:
            # torch.export patches the settings of Dynamo and AOTAutograd before
            _begin_compile(("torch._inductor.config",))
            number = graph_recorder.record_graph(
                model_,
                example_inputs_,
                "export",
                compile_id(),
                False,
                entry=entry_programs.AOTINDUCTOR,
                options=kwargs.get("config_patches"),
            )
            try:
                result = real(model_, example_inputs_, *args, **kwargs)
            except Exception as error:
                _journal_failure(error)
                raise
            journal.write_event(events.GraphDone(n=number))
            return result

        return compile_fx_aot

    wrap_symbol("torch._inductor.compile_fx:compile_fx_aot", make_hook)


def _begin_compile(configs: Sequence[str] = compile_settings.CONFIGS) -> None:
    for change in BEFORE_COMPILE:
        change()
    # the compiler patches some settings during the compile
    compile_settings.note_configs(configs)


def _journal_failure(error: Exception) -> None:
    nodes: list[list[str]] = []
    with contextlib.suppress(Exception):  # the scheduler of another version of torch
        nodes = nodes_at_work.nodes_at_work(error)
    journal.write_event(
        events.CompileFailed(
            where="compile",
            cid=compile_id(),
            chain=exceptions.describe_exception(error),
            nodes=nodes,
        )
    )


def hook_failures() -> None:
    """Journal each exception that leaves the compiler, with all of its frames.

    Dynamo removes frames before it raises an exception to the program, which may catch it.
    Exceptions for control flow (restarts, skipped frames, graph breaks) are not failures.
    """
    from torch._dynamo import exc

    names = (
        "SkipFrame",
        "RestartAnalysis",
        "Unsupported",
        "SkipCodeRecursiveException",
        "RecompileLimitExceeded",
        "ResumePrologueTracingError",
    )
    control_flow: tuple[type[BaseException], ...] = tuple(
        getattr(exc, n) for n in names if hasattr(exc, n)
    )

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def _compile(*args: Any, **kwargs: Any) -> Any:
            _begin_compile()
            # how many frames Dynamo omits from the stacks that it logs; this one is added
            if "skip" in kwargs:
                kwargs["skip"] += 1
            try:
                return real(*args, **kwargs)
            except control_flow as control:
                if isinstance(control, exc.Unsupported):
                    recompile_hooks.note_break(control, is_given_up=True)
                raise
            except Exception as error:
                _journal_failure(error)
                raise

        return _compile

    wrap_symbol("torch._dynamo.convert_frame:_compile", make_hook)


def hook_calls() -> None:
    """Count the calls of compiled graphs.

    The count separates a program that makes many calls from one whose call never returns.
    """
    from torch._inductor.output_code import CompiledFxGraph

    counted = _CountedMethod(CompiledFxGraph.__call__)
    CompiledFxGraph.__call__ = counted  # type: ignore[method-assign, assignment]


class _CountedMethod:
    """Count the look-ups of a method.

    A wrapper that counts calls would add a frame to the tracebacks of the method's errors.
    """

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self._real
        journal.calls += 1
        return self._real.__get__(owner, kind)
