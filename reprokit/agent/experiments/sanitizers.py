"""Build the generated C++ with the sanitizers of GCC, and note in it where each line comes from.

The host preloads the libraries of the sanitizers. A comment at the end of a line names the operator
of the graph, and the line of the program that called it:

    auto tmp1 = in_ptr0[static_cast<int64_t>(x0)]; // reprokit: aten.erf.default | model.py:12
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...core.shared import sanitizer_flags
from ..record import program_code
from ..torch_hooks import symbols

if TYPE_CHECKING:
    import torch

_KEY = "reprokit_origin"
_FRAME = re.compile(r'File "(?P<file>[^"\n\\]+)", line (?P<line>\d+)')
_lowered: list[str] = []
"""Origins of the nodes that are lowered now, the innermost last."""
_called: list[str] = []
"""Origins of the loop bodies that are traced now, the innermost last."""


def build_with_sanitizers() -> None:
    """Build each C++ kernel of this process with the sanitizers.

    The processes that it starts run without them.
    """
    if preloaded := os.environ.get("LD_PRELOAD"):
        kept = [path for path in preloaded.split(":") if not sanitizer_flags.is_library(path)]
        os.environ["LD_PRELOAD"] = ":".join(kept)
        if not kept:
            del os.environ["LD_PRELOAD"]
    symbols.INDUCTOR_HOOKS.extend(
        (_add_flags, _note_nodes, _note_loops, _note_operations, _note_lines)
    )


def _add_flags() -> None:
    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def run_compile_cmd(cmd_line: str, *args: Any, **kwargs: Any) -> Any:
            if sanitizer_flags.is_of_kernel(cmd_line):
                cmd_line = f"{cmd_line} {sanitizer_flags.COMPILER_FLAGS}"
            return real(cmd_line, *args, **kwargs)

        return run_compile_cmd

    symbols.wrap_symbol("torch._inductor.cpp_builder:run_compile_cmd", make_hook)


def _note_nodes() -> None:
    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def run_node(self: Any, n: torch.fx.Node) -> Any:
            _lowered.append(_origin_of(n))
            try:
                return real(self, n)
            finally:
                _lowered.pop()

        return run_node

    symbols.wrap_symbol("torch._inductor.graph:GraphLowering.run_node", make_hook)


def _origin_of(node: torch.fx.Node) -> str:
    """Return ``OPERATOR | FILE:LINE`` of a node; the line is left out where it is not known."""
    operator = str(node.meta.get("original_aten") or node.target)
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    own = [f for f in frames if not f["file"].startswith(program_code.library_folders())]
    place = f" | {own[-1]['file']}:{own[-1]['line']}" if own else ""
    return re.sub(r"[\\\n]", "", f"{operator}{place}")


def _note_loops() -> None:
    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def __post_init__(self: Any) -> None:
            real(self)
            for name in ("inner_fn", "output_indexer"):
                if _lowered and callable(function := getattr(self, name, None)):
                    object.__setattr__(self, name, _noting(function, _lowered[-1]))

        return __post_init__

    symbols.wrap_symbol("torch._inductor.ir:Loops.__post_init__", make_hook)


def _noting(function: Callable[..., Any], origin: str) -> Callable[..., Any]:
    def noting(*args: Any, **kwargs: Any) -> Any:
        _called.append(origin)
        try:
            return function(*args, **kwargs)
        finally:
            _called.pop()

    return noting


def _note_operations() -> None:
    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def create_proxy(
            self: Any, kind: Any, target: Any, args: Any, *more: Any, **kw: Any
        ) -> Any:
            proxy = real(self, kind, target, args, *more, **kw)
            # a body may be traced again from its graph, and a store is outside of all functions
            known = [getattr(getattr(a, "node", None), "meta", {}).get(_KEY) for a in args]
            origin = (_called or [_origin_at_work()])[-1] or next(filter(None, known), "")
            if origin:
                proxy.node.meta[_KEY] = origin
            return proxy

        return create_proxy

    symbols.wrap_symbol("torch._inductor.loop_body:LightTracer.create_proxy", make_hook)


def _origin_at_work() -> str:
    """Return the origin of the operation whose code is generated now; empty if there is none."""
    from torch._inductor.virtualized import V

    node = getattr(V.interpreter, "current_node", None)
    return str(node.meta.get(_KEY, "")) if node is not None else ""


def _note_lines() -> None:
    from torch._inductor.utils import DeferredLineBase

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def writeline(self: Any, line: Any) -> None:
            is_deferred = isinstance(line, DeferredLineBase)
            text = line.line if is_deferred else line
            if isinstance(text, str) and text.endswith(";") and (origin := _origin_at_work()):
                text = f"{text} {sanitizer_flags.MARK}{origin}"
                line = line._new_line(text) if is_deferred else text
            real(self, line)

        return writeline

    symbols.wrap_symbol("torch._inductor.utils:IndentedBuffer.writeline", make_hook)
