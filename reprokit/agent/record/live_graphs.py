"""Record the graphs that a running process is compiling at this moment.

The host runs this in the main thread of a process that was started without the agent, between two
bytecodes. The graphs and their inputs are the local variables of the functions that the agent hooks
elsewhere. Only metadata is read: an operation on a tensor would become a part of the user's trace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import compile_settings, graph_recorder, journal

if TYPE_CHECKING:
    import torch


class CompilingFunction(NamedTuple):
    """A function of torch on whose frame a graph is visible."""

    module: str
    function: str
    level: str
    graph: str
    """The name of the local variable with the graph."""
    inputs: str


FUNCTIONS = (
    CompilingFunction(
        "torch/_dynamo/output_graph.py", "_call_user_compiler", "dynamo", "gm", "example_inputs"
    ),
    CompilingFunction(
        "torch/_inductor/compile_fx.py", "_compile_fx_inner", "aten", "gm", "example_inputs"
    ),
    CompilingFunction(
        "torch/_inductor/compile_fx.py", "compile_fx_aot", "export", "model_", "example_inputs_"
    ),
)


def record_live_graphs(run_dir: str) -> int:
    """Write the graphs on the stacks of all threads into the run directory, and return their
    number.
    """
    if "torch" not in sys.modules:
        return 0  # an import would stay in the process
    from torch.utils._python_dispatch import _disable_current_modes

    journal.RUN_DIR = run_dir
    count = 0
    try:
        compile_settings.note_configs(left_out=compile_settings.PATCHED_BY_TORCH)
        with _disable_current_modes():
            for frames in _stacks():
                found = sum([_record_graph(frame) for frame in frames])
                count += found or any(_record_compiled_graph(frame) for frame in frames)
    finally:
        journal.close_journal()
    return count


def _stacks() -> Iterator[list[FrameType]]:
    """Yield the frames of each thread, outermost first."""
    for innermost in sys._current_frames().values():
        frames = []
        frame: FrameType | None = innermost
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        yield frames[::-1]


def _record_graph(frame: FrameType) -> bool:
    file = frame.f_code.co_filename.replace(os.sep, "/")
    for where in FUNCTIONS:
        if frame.f_code.co_name == where.function and file.endswith(where.module):
            found = frame.f_locals
            graph, inputs = found.get(where.graph), found.get(where.inputs)
            if graph is None or inputs is None:
                return False
            options: dict[str, Any] = found.get("graph_kwargs") or {}
            _write_graph(
                frame,
                graph,
                inputs,
                where.level,
                getattr(found.get("self"), "compiler_fn", None),
                bool(options.get("is_backward")),
            )
            return True
    return False


def _record_compiled_graph(frame: FrameType) -> bool:
    """Record the graph of a frame of Dynamo that has compiled it, and builds its guards."""
    file = frame.f_code.co_filename.replace(os.sep, "/")
    # reading the locals of a function of the user would keep them alive before Python 3.13
    if frame.f_code.co_name != "_compile_inner" or not file.endswith(
        "torch/_dynamo/convert_frame.py"
    ):
        return False
    output = frame.f_locals.get("output")
    if output is None:
        return False
    nodes = list(output.graph.nodes)
    if not nodes or nodes[-1].op != "output":
        return False  # Dynamo still traces
    import torch
    from torch._dynamo.output_graph import FakeRootModule

    # a module for the graph itself would become its owner
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(output.graph, {}))
    module = torch.fx.GraphModule(FakeRootModule(output.nn_modules), graph)
    inputs = [node.meta.get("example_value") for node in nodes if node.op == "placeholder"]
    _write_graph(frame, module, inputs, "dynamo", getattr(output, "compiler_fn", None))
    return True


def _write_graph(
    frame: FrameType,
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    level: str,
    compiler_fn: Callable[..., Any] | None,
    is_backward: bool = False,
) -> None:
    with _grad_mode(level):
        graph_recorder.record_graph(
            graph,
            inputs,
            level,
            _compile_id(frame),
            is_backward,
            compiler_fn=compiler_fn,
            has_values=False,
        )


def _grad_mode(level: str) -> AbstractContextManager[object]:
    """Set the grad mode in which the program called the function that Dynamo compiles."""
    import torch
    from torch._guards import TracingContext

    context = TracingContext.try_get() if level == "dynamo" else None
    state = getattr(context and context.global_context, "global_state", {})
    _, is_enabled = state.get("grad_enabled", (None, torch.is_grad_enabled()))
    return torch.set_grad_enabled(is_enabled)


def _compile_id(frame: FrameType | None) -> str | None:
    """Return the id of the compile in whose frames ``frame`` is; None for one without Dynamo.

    torch keeps the id for each thread, and this runs in the main thread.
    """
    while frame is not None:
        is_dynamo = frame.f_code.co_filename.endswith(os.path.join("_dynamo", "convert_frame.py"))
        if is_dynamo and frame.f_code.co_name == "_compile":
            found = frame.f_locals.get("compile_id")
            return str(found) if found is not None else None
        frame = frame.f_back
    return None
