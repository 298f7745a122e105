"""Run a program that launches its own Triton kernels, and write each kernel as a program.

No kernel is compiled or launched. The GPU is simulated, so that the program runs to its end on fake
tensors.
"""

from __future__ import annotations

import ast
import math
import os
import runpy
import sys
import textwrap
from typing import Any

from ...core.shared.source import triton_programs
from ..record import graph_recorder, journal
from ..record.generated_kernels import FOLDER, free_name


class _Unwritable(Exception):
    """A kernel uses a value that cannot be written as Python text."""


class _Text(str):
    """A value whose text is not its ``repr``."""

    def __repr__(self) -> str:
        return str(self)


def record_launches(path: str) -> dict[str, list[str]]:
    """Run the program at ``path`` as Python does, and return the files by the name of the kernel.

    Raises what the program raises, if it has not launched a kernel before.
    """
    from torch._subclasses.fake_tensor import FakeTensor
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    files: dict[str, list[str]] = {}
    programs: set[str] = set()
    unwritable: list[_Unwritable] = []

    def write_kernel(
        self: Any,
        key: Any,
        signature: Any,
        device: Any,
        constexprs: Any,
        options: Any,
        attrs: Any,
        *_: Any,
    ) -> None:
        _, _, target, backend, *_ = self.device_caches[device]
        defaults = backend.parse_options({}).__dict__
        changed = {
            k: v for k, v in options.__dict__.items() if v != defaults.get(k) and _is_plain(v)
        }
        try:
            call = triton_programs.TritonCall(
                dict(signature),
                {k: _Text(_value_text(v)) for k, v in constexprs.items()},
                dict(attrs),
                (str(target.backend), int(target.arch), int(target.warp_size)),
                changed,
            )
            program = triton_programs.launched_program(self.__name__, _definitions(self), call)
        except _Unwritable as problem:
            unwritable.append(problem)
            return
        if program not in programs:
            programs.add(program)
            stem = free_name(self.__name__, f"{len(programs):07d}")
            graph_recorder.write_whole(os.path.join(journal.RUN_DIR, FOLDER), f"{stem}.py", program)
            files.setdefault(self.__name__, []).append(f"{stem}.py")

    os.makedirs(os.path.join(journal.RUN_DIR, FOLDER), exist_ok=True)
    if not hasattr(JITFunction, "_do_compile"):
        raise _Unwritable("this Triton has no JITFunction._do_compile")
    JITFunction._do_compile = write_kernel
    # launch each configuration once, and time none
    Autotuner.do_bench = lambda self, call, **_: (call(), [0.0] * 3)[1]
    # aligned, as the addresses of the CUDA allocator are
    FakeTensor.data_ptr = lambda self: 0  # type: ignore[method-assign]
    sys.argv, sys.path[0] = [path], os.path.dirname(path)
    try:
        runpy.run_path(path, run_name="__main__")
    except (Exception, SystemExit):
        # after a launch, the program may fail because a fake tensor has no values
        if not programs and not unwritable:
            raise
    if unwritable and not programs:
        raise unwritable[0]
    return files


def _definitions(function: Any) -> list[str]:
    """Return the definitions that a kernel uses (imports, constants, functions), and the kernel."""
    rows: dict[str, str] = {}
    _define(function, function.__name__, rows)
    return list(rows.values())


def _define(function: Any, name: str, rows: dict[str, str]) -> None:
    if name in rows:
        return
    source = textwrap.dedent(function.src)
    tree = ast.parse(source)
    if tree.body[0].name != name:  # type: ignore[attr-defined]
        raise _Unwritable(f"{name} is another name of {function.__name__}")
    rows[name] = ""  # ends the recursion for functions that call each other
    scope = function.get_capture_scope()
    local = {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    local |= {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for used in sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - local - {name}):
        if used in scope:
            _add_definition(used, scope[used], rows)
    del rows[name]
    rows[name] = f"@triton.jit\n{source.rstrip()}\n"


def _add_definition(name: str, value: Any, rows: dict[str, str]) -> None:
    kind, module = type(value).__name__, getattr(value, "__module__", "") or ""
    if kind == "JITFunction" and not module.startswith("triton."):
        _define(value, name, rows)
    elif kind == "module":
        imported = value.__name__
        if imported.split(".")[0] not in {"triton", *sys.stdlib_module_names}:
            raise _Unwritable(f"it uses the module {imported}")
        rows[name] = f"import {imported}" if imported == name else f"import {imported} as {name}"
    elif (
        module.startswith("triton")
        and (kind == "JITFunction" or callable(value))
        and hasattr(value, "__name__")
    ):
        function = value.__name__
        alias = f" as {name}" if function != name else ""
        rows[name] = f"from {module} import {function}{alias}"
    else:
        rows[name] = f"{name} = {_value_text(value)}"


def _value_text(value: Any) -> str:
    kind = type(value).__name__
    if kind == "constexpr":
        return f"tl.constexpr({_value_text(value.value)})"
    if kind == "dtype":
        return f"tl.dtype({str(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if _is_plain(value):
        return repr(value)
    raise _Unwritable(f"a value of the type {kind} cannot be written as Python text")


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)
