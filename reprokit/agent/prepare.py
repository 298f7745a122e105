"""Prepare this process for ``reprokit attach``, from inside: ``reprokit.watch()``.

A process that is prepared permits a process of the same user to read its stacks, writes them itself
on a signal, and keeps its last compile phases in memory. Nothing is written to a disk, and no
thread is started.
"""

from __future__ import annotations

import os
import sys

from ..core.shared.contract import run_names
from . import import_hook

PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, -1
"""With Yama's ``ptrace_scope`` 1, only a parent may attach, unless the process permits others."""
_is_prepared = False
_stacks_fd = -1


def prepare_process() -> None:
    """Prepare this process now, and its compiler when it is imported.

    Only the first call has an effect. It has none under ``reprokit capture``, which records more,
    and none on a system other than Linux.
    """
    global _is_prepared
    if _is_prepared or not _is_wanted():
        return
    _is_prepared = True
    from .record import journal

    try:
        journal.write_to_memory()
    except OSError:  # a limit on memory or on descriptors: the program goes on without a journal
        return
    _permit_reading()
    os.register_at_fork(after_in_child=_permit_reading)
    hooks = {"torch._dynamo": _watch_dynamo, "torch._inductor.compile_fx": _watch_inductor}
    for name, hook in hooks.items():
        if name in sys.modules:
            hook()
    import_hook.wait_for_modules(
        {name: (None, hook) for name, hook in hooks.items() if name not in sys.modules}
    )


def prepare_at_import() -> None:
    """Prepare this process when it imports torch or Triton (``REPROKIT_WATCH=1``)."""
    if _is_wanted():
        import_hook.wait_for_modules(
            {"torch": (prepare_process, None), "triton": (prepare_process, None)}
        )


def _is_wanted() -> bool:
    return sys.platform == "linux" and not os.environ.get(run_names.RUN_DIR_VARIABLE)


def _permit_reading() -> None:
    """Permit other processes to read the stacks of this one, and write them on a signal."""
    global _stacks_fd
    # a program without torch must not pay for these imports (REPROKIT_WATCH)
    import ctypes
    import faulthandler
    import signal

    from ..core.shared.contract.journal_format import MEMORY_STACKS, STACKS_SIGNAL
    from .record import memory_journal

    try:
        ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)
        if _stacks_fd >= 0:
            memory_journal.close_memory_file(_stacks_fd, MEMORY_STACKS)
        elif signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
            return  # the program handles it
        _stacks_fd = memory_journal.open_memory_file(MEMORY_STACKS)
        faulthandler.register(STACKS_SIGNAL, file=_stacks_fd, all_threads=True, chain=False)
    except (OSError, AttributeError, RuntimeError):
        return  # its stacks are read as those of any other process


def _watch_dynamo() -> None:
    import torch

    from .torch_hooks import phases_and_graphs, symbols

    if symbols.parse_version(torch.__version__) >= symbols.OLDEST_TORCH:
        for hook in (
            phases_and_graphs.exclude_agent,
            phases_and_graphs.hook_phases,
            phases_and_graphs.hook_lines,
        ):
            symbols.attempt_hook(hook)


def _watch_inductor() -> None:
    from .torch_hooks import phases_and_graphs, symbols

    symbols.attempt_hook(phases_and_graphs.hook_nodes)
