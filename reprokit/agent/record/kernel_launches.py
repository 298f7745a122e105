"""Run a program that launches its own Triton kernels, and leave each as a program of its own;
nothing is compiled or launched.

The GPU is simulated, so that the program can run to its end on fake tensors: what it computes is
not what it would be.
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
from . import graph_recorder, journal
from .generated_kernels import FOLDER, free_name


class _Unwritable(Exception):
    """A kernel reads something that has no text of its own."""


class _Text(str):
    """A value whose text is not its ``repr``."""

    def __repr__(self) -> str:
        return str(self)


def record_launches(path: str) -> dict[str, list[str]]:
    """Run the program at ``path`` as Python would; gives the files by the name of the kernel.

    Raises what the program raises where it has launched nothing before.
    """
    from torch._subclasses.fake_tensor import FakeTensor
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    found: dict[str, list[str]] = {}
    known: set[str] = set()
    unwritable: list[_Unwritable] = []

    def heard(
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
        usual = backend.parse_options({}).__dict__
        changed = {k: v for k, v in options.__dict__.items() if v != usual.get(k) and _is_plain(v)}
        try:
            call = triton_programs.TritonCall(
                dict(signature),
                {k: _Text(_value(v)) for k, v in constexprs.items()},
                dict(attrs),
                (str(target.backend), int(target.arch), int(target.warp_size)),
                changed,
            )
            program = triton_programs.launched_program(self.__name__, _definitions(self), call)
        except _Unwritable as problem:
            unwritable.append(problem)
            return
        if program not in known:
            known.add(program)
            stem = free_name(self.__name__, f"{len(known):07d}")
            graph_recorder.write_whole(os.path.join(journal.RUN_DIR, FOLDER), f"{stem}.py", program)
            found.setdefault(self.__name__, []).append(f"{stem}.py")

    os.makedirs(os.path.join(journal.RUN_DIR, FOLDER), exist_ok=True)
    if not hasattr(JITFunction, "_do_compile"):
        raise _Unwritable("this Triton has no JITFunction._do_compile")
    JITFunction._do_compile = heard
    Autotuner.do_bench = lambda self, call, **_: (call(), [0.0] * 3)[
        1
    ]  # every configuration is launched, none timed
    FakeTensor.data_ptr = lambda self: 0  # aligned, as the allocator's are
    sys.argv, sys.path[0] = [path], os.path.dirname(path)
    try:
        runpy.run_path(path, run_name="__main__")
    except (Exception, SystemExit):
        if not known and not unwritable:  # after a launch, results are asked for that are not there
            raise
    if unwritable and not known:
        raise unwritable[0]
    return found


def _definitions(function: Any) -> list[str]:
    """The kernel with what it reads: imports, constants, and functions that it calls, before it."""
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
    rows[name] = ""  # its place, for functions that call each other
    scope = function.get_capture_scope()
    inside = {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    inside |= {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    for used in sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - inside - {name}):
        if used in scope:
            _carry(used, scope[used], rows)
    del rows[name]
    rows[name] = f"@triton.jit\n{source.rstrip()}\n"


def _carry(name: str, value: Any, rows: dict[str, str]) -> None:
    kind, module = type(value).__name__, getattr(value, "__module__", "") or ""
    if kind == "JITFunction" and not module.startswith("triton."):
        _define(value, name, rows)
    elif kind == "module":
        whole = value.__name__
        if whole.split(".")[0] not in {"triton", *sys.stdlib_module_names}:
            raise _Unwritable(f"it uses the module {whole}")
        rows[name] = f"import {whole}" if whole == name else f"import {whole} as {name}"
    elif (
        module.startswith("triton")
        and (kind == "JITFunction" or callable(value))
        and hasattr(value, "__name__")
    ):
        own = value.__name__
        rows[name] = f"from {module} import {own}" + (f" as {name}" if own != name else "")
    else:
        rows[name] = f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    kind = type(value).__name__
    if kind == "constexpr":
        return f"tl.constexpr({_value(value.value)})"
    if kind == "dtype":
        return f"tl.dtype({str(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if _is_plain(value):
        return repr(value)
    raise _Unwritable(f"a value of the type {kind} has no text of its own")


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)
