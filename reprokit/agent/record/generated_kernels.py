"""Write each Triton kernel that Inductor generates as a stand-alone program.

No kernel is compiled in this process.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from ...core.shared.source import triton_programs
from . import graph_recorder, journal

FOLDER = "kernels"
MAX_STEM_CHARS = 80
"""Limit of a file's name: the name of a kernel has the names of all fused operators."""
_files: dict[str, list[str]] = {}
"""The files of each kernel, by the identity of the kernel."""
_taken: set[str] = set()
"""The stems of file names in use."""


class _CompileCalled(BaseException):
    """Inductor called ``triton.compile``; the exception leaves Inductor there."""


def note_module(path: str, load: Callable[[str, str], Any]) -> None:
    """Write the kernels of the generated module at ``path``.

    Each configuration that Inductor compiles is one program. ``load`` is the function of Inductor
    that imports a module that it has written.
    """
    # the probe server while it warms up, and a probe, have no folder for kernels
    if not journal.RUN_DIR or not graph_recorder.MAX_GRAPHS:
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    graph_recorder.keep_compiled(text)
    for name, source in triton_programs.find_kernels(text).items():
        key = triton_programs.kernel_identity(name, source)
        problem = ""
        if key not in _files:
            try:
                _files[key] = _write_programs(name, free_name(name, key), source, load)
            except Exception as error:  # the compile must go on
                _files[key], problem = [], cuts.cut_head(repr(error), 500)
        journal.write_event(
            events.KernelWritten(name=name, key=key, files=_files[key], problem=problem)
        )


def write_all(path: str, load: Callable[[str, str], Any]) -> dict[str, list[str]]:
    """Write the kernels of the generated module at ``path``, and return their files by kernel name.

    The process simulates a GPU. ``load`` is as in :func:`note_module`.
    """
    with open(path, encoding="utf-8") as file:
        kernels = triton_programs.find_kernels(file.read())
    stems = {
        name: free_name(name, triton_programs.kernel_identity(name, source))
        for name, source in kernels.items()
    }
    return {
        name: _write_programs(name, stems[name], source, load) for name, source in kernels.items()
    }


def free_name(name: str, key: str) -> str:
    """Return a stem for the file names of a kernel that no other kernel of this process has.

    Inductor numbers the kernels of each graph from 0, so two kernels can have the same ``name``;
    their ``key`` is different.
    """
    stem = name[:MAX_STEM_CHARS]
    if stem in _taken:
        stem = f"{name[: MAX_STEM_CHARS - 8]}-{key[:7]}"
    _taken.add(stem)
    return stem


def _write_programs(
    name: str, stem: str, source: str, load: Callable[[str, str], Any]
) -> list[str]:
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.runtime import triton_helpers

    tuner = getattr(load(*PyCodeCache.write(source)), name)
    helpers = inspect.getsource(triton_helpers)
    folder = os.path.join(journal.RUN_DIR, FOLDER)
    os.makedirs(folder, exist_ok=True)
    files = []
    for number, config in enumerate(tuner.configs):
        call = _compile_arguments(tuner, config)
        program = triton_programs.generated_program(name, source, helpers, call)
        file = f"{stem}-{number}.py" if len(tuner.configs) > 1 else f"{stem}.py"
        graph_recorder.write_whole(folder, file, program)
        files.append(file)
    return files


def _compile_arguments(tuner: Any, config: Any) -> triton_programs.TritonCall:
    """Return the arguments that Inductor passes to ``triton.compile`` for a configuration."""
    import triton

    arguments: dict[str, Any] = {}

    def compile(source: Any, target: Any = None, options: Any = None, **_: Any) -> Any:
        arguments.update(source=source, target=target, options=options)
        raise _CompileCalled

    real = triton.compile
    triton.compile = compile
    try:
        tuner._precompile_config(config)
    except _CompileCalled:
        pass
    finally:
        triton.compile = real
    source, target = arguments["source"], arguments["target"]
    constants = getattr(source, "constants", None) or getattr(source, "constexprs", {})
    return triton_programs.TritonCall(
        dict(source.signature),
        dict(constants),
        dict(getattr(source, "attrs", {}) or {}),
        (str(target.backend), int(target.arch), int(target.warp_size)),
        dict(arguments["options"] or {}),
    )
