"""Hooks on Dynamo and Inductor: phases, traced lines, lowered nodes, graphs, recompiles, failures.

Each hook is tried alone; one that does not fit this torch is journalled as missing and the others
stand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...core.shared.contract import events
from ..record import compile_settings, exceptions, graph_recorder, journal
from . import recompile_hooks, torch_logs
from .hooking import compile_id, wrap_function

OLDEST_TORCH = (2, 9)
BEFORE_COMPILE: list[Callable[[], None]] = []
"""Called before each compile, inside of Dynamo's own entry point."""
PROGRESS_EVERY_S = 0.5
"""Each line and node is told, and one is journalled at most this often."""


def version_of(text: str) -> tuple[int, int]:
    """``2.13.0+cpu`` as ``(2, 13)``."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def keep_out() -> None:
    """Keep Dynamo from compiling our functions: after a graph break the program calls some, such as
    those in its warnings.
    """
    from torch._dynamo import trace_rules

    package = __package__.split(".")[0]
    for name in ("core", "agent.import_hook", "agent.record", "agent.torch_hooks"):
        trace_rules.add(f"{package}.{name}")


def hook_phases() -> None:
    from torch._dynamo.utils import ChromiumEventLogger

    def start(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_event_start(self: Any, event_name: str, *args: Any, **kwargs: Any) -> Any:
            torch_logs.listen_to_logs()
            result = real(self, event_name, *args, **kwargs)
            journal.start_heartbeat()
            journal.write(
                events.Begin(name=event_name, cid=compile_id(), cpu=round(time.process_time(), 4))
            )
            return result

        return log_event_start

    def end(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_event_end(self: Any, event_name: str, *args: Any, **kwargs: Any) -> Any:
            result = real(self, event_name, *args, **kwargs)
            journal.write(events.End(name=event_name, cpu=round(time.process_time(), 4)))
            return result

        return log_event_end

    wrap_function(ChromiumEventLogger, "log_event_start", start)
    wrap_function(ChromiumEventLogger, "log_event_end", end)


class _Progress:
    """Tells each step of something that advances, and journals a step now and then."""

    def __init__(self, unit: str) -> None:
        self.unit, self.count, self._next = unit, 0, 0.0

    def step(self, where: str, repeats: int = 0, repeated: str = "") -> None:
        self.count += 1
        journal.now(self.unit, where, repeats, repeated)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + PROGRESS_EVERY_S
            journal.write(events.Progress(unit=self.unit, count=self.count, where=where))


def hook_lines() -> None:
    """Tell each user line that Dynamo traces, and how often a loop has come back to the same one.

    The count is that of one traced frame, or of a frame that called it: a function that many layers
    call is no loop, and a loop that calls functions is one.
    """
    from torch._dynamo.symbolic_convert import InstructionTranslatorBase

    progress = _Progress("line")

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def starts_line(self: Any, lineno: int) -> Any:
            where = f"{self.f_code.co_filename}:{lineno} in {self.f_code.co_name}"
            counts = self.__dict__.setdefault("_reprokit_counts", {})
            counts[lineno] = count = counts.get(lineno, 0) + 1
            most = max(
                (count, where), getattr(getattr(self, "parent", None), "_reprokit_most", (0, ""))
            )
            self._reprokit_most = most
            progress.step(where, *most)
            return real(self, lineno)

        return starts_line

    wrap_function(InstructionTranslatorBase, "starts_line", make)


def hook_nodes() -> None:
    from torch._inductor.graph import GraphLowering

    progress = _Progress("node")

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def run_node(self: Any, n: Any) -> Any:
            progress.step(f"node {n.name} ({n.target})"[:300])
            return real(self, n)

        return run_node

    wrap_function(GraphLowering, "run_node", make)


def hook_graphs() -> None:
    from torch._dynamo.output_graph import OutputGraph

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def _call_user_compiler(
            self: Any, gm: Any, example_inputs: Any, *args: Any, **kwargs: Any
        ) -> Any:
            asked = self.compiler_fn
            number = graph_recorder.record_graph(
                gm, example_inputs, "dynamo", compile_id(), False, compiler_fn=asked
            )
            result = real(self, gm, example_inputs, *args, **kwargs)
            journal.write(events.GraphDone(n=number))
            return result

        return _call_user_compiler

    wrap_function(OutputGraph, "_call_user_compiler", make)


def hook_aten_graphs() -> None:
    from torch._inductor import compile_fx

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def _compile_fx_inner(gm: Any, example_inputs: Any, *args: Any, **kwargs: Any) -> Any:
            backward = bool(kwargs.get("is_backward"))
            number = graph_recorder.record_graph(
                gm, example_inputs, level="aten", cid=compile_id(), is_backward=backward
            )
            graph_recorder.current = number
            result = real(gm, example_inputs, *args, **kwargs)
            journal.write(events.GraphDone(n=number))
            return result

        return _compile_fx_inner

    wrap_function(compile_fx, "_compile_fx_inner", make)


def hook_failures() -> None:
    """Hear every exception that leaves the compiler, while its frames are whole.

    Dynamo strips frames before it raises to the user, and the user may catch what is left. Control
    flow (restarts, skipped frames, graph breaks) is no failure.
    """
    from torch._dynamo import convert_frame, exc

    names = (
        "SkipFrame",
        "RestartAnalysis",
        "Unsupported",
        "SkipCodeRecursiveException",
        "RecompileLimitExceeded",
        "ResumePrologueTracingError",
    )
    flow: tuple[type[BaseException], ...] = tuple(getattr(exc, n) for n in names if hasattr(exc, n))

    def make(real: Callable[..., Any]) -> Callable[..., Any]:
        def _compile(*args: Any, **kwargs: Any) -> Any:
            for change in BEFORE_COMPILE:
                change()
            # before Dynamo patches some for the time of the compile
            compile_settings.note_configs()
            if (
                "skip" in kwargs
            ):  # the frames that Dynamo leaves out of the stacks that it logs; ours is one more
                kwargs["skip"] += 1
            try:
                return real(*args, **kwargs)
            except flow as control:
                if isinstance(control, exc.Unsupported):
                    recompile_hooks.note_break(control, is_given_up=True)
                raise
            except Exception as error:
                journal.write(
                    events.CompileFailed(
                        where="compile",
                        cid=compile_id(),
                        chain=exceptions.describe_exception(error),
                    )
                )
                raise

        return _compile

    wrap_function(convert_frame, "_compile", make)


def hook_calls() -> None:
    """Count the calls of compiled graphs: a kernel that takes long and one that never returns look
    alike otherwise.
    """
    from torch._inductor.output_code import CompiledFxGraph

    CompiledFxGraph.__call__ = _Counted(CompiledFxGraph.__call__)


class _Counted:
    """Counts when a method is looked up to be called, so that no frame of ours is in the tracebacks
    of its errors.
    """

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self._real
        journal.calls += 1
        return self._real.__get__(owner, kind)
