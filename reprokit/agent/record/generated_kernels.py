"""Leave each Triton kernel that Inductor generates as a program of its own; nothing is compiled
here.
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
MOST_CHARS = 80
"""Of a file's name: kernels are called by all that was fused."""
_known: dict[str, list[str]] = {}
"""Files by the identity of the kernel."""
_taken: set[str] = set()


class _Heard(BaseException):
    """Leaves Inductor where it would call Triton."""


def note_module(path: str, load: Callable[[str, str], Any]) -> None:
    """Write the kernels of the generated module at ``path``, one program for each configuration
    that Inductor compiles.

    ``load`` is Inductor's own import of a text that it has written.
    """
    if not journal.RUN_DIR or not graph_recorder.MAX_GRAPHS:  # a server that warms up, and a probe
        return
    with open(path, encoding="utf-8") as file:
        text = file.read()
    graph_recorder.keep_compiled(text)
    for name, source in triton_programs.find_kernels(text).items():
        key = triton_programs.kernel_identity(name, source)
        problem = ""
        if key not in _known:
            try:
                _known[key] = _write(name, free_name(name, key), source, load)
            except Exception as error:  # the module is generated all the same
                _known[key], problem = [], cuts.cut_head(repr(error), 500)
        journal.write(events.KernelWritten(name=name, key=key, files=_known[key], problem=problem))


def write_all(path: str, load: Callable[[str, str], Any]) -> dict[str, list[str]]:
    """The kernels of any such module, in a process that simulates a GPU; files by name. ``load`` as
    for :func:`note`.
    """
    with open(path, encoding="utf-8") as file:
        found = triton_programs.find_kernels(file.read())
    stems = {
        name: free_name(name, triton_programs.kernel_identity(name, source))
        for name, source in found.items()
    }
    return {name: _write(name, stems[name], source, load) for name, source in found.items()}


def free_name(name: str, key: str) -> str:
    """A name for files; each graph numbers its kernels anew. ``key`` tells those of one name
    apart.
    """
    free = (
        name[:MOST_CHARS]
        if name[:MOST_CHARS] not in _taken
        else f"{name[: MOST_CHARS - 8]}-{key[:7]}"
    )
    _taken.add(free)
    return free


def _write(name: str, stem: str, source: str, load: Callable[[str, str], Any]) -> list[str]:
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.runtime import triton_helpers

    tuner = getattr(load(*PyCodeCache.write(source)), name)
    helpers = inspect.getsource(triton_helpers)
    folder = os.path.join(journal.RUN_DIR, FOLDER)
    os.makedirs(folder, exist_ok=True)
    found = []
    for place, config in enumerate(tuner.configs):
        program = triton_programs.generated_program(name, source, helpers, _call(tuner, config))
        file = f"{stem}-{place}.py" if len(tuner.configs) > 1 else f"{stem}.py"
        graph_recorder.write_whole(folder, file, program)
        found.append(file)
    return found


def _call(tuner: Any, config: Any) -> triton_programs.TritonCall:
    """What Inductor would call Triton with for this configuration."""
    from torch._inductor.runtime import triton_heuristics

    heard: dict[str, Any] = {}

    def compile(source: Any, target: Any = None, options: Any = None, **_: Any) -> Any:
        heard.update(source=source, target=target, options=options)
        raise _Heard

    triton = triton_heuristics.triton
    real = triton.compile
    triton.compile = compile
    try:
        tuner._precompile_config(config)
    except _Heard:
        pass
    finally:
        triton.compile = real
    source, target = heard["source"], heard["target"]
    constants = getattr(source, "constants", None) or getattr(source, "constexprs", {})
    return triton_programs.TritonCall(
        dict(source.signature),
        dict(constants),
        dict(getattr(source, "attrs", {}) or {}),
        (str(target.backend), int(target.arch), int(target.warp_size)),
        dict(heard["options"] or {}),
    )
