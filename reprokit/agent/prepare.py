"""Prepare this process for ``reprokit attach``, from inside: ``reprokit.watch()``.

A process that is prepared permits a process of the same user to read its stacks, writes them itself
on a signal, and keeps its last compile phases in memory. Nothing is written to a disk, and no
thread is started. Nothing here may raise into the program.
"""

from __future__ import annotations

import os
import sys

from ..core.shared.contract import run_names
from . import import_hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .record.memory_journal import MemoryFile

PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, -1
"""With Yama's ``ptrace_scope`` 1, only a parent may attach, unless the process permits others."""
_is_prepared = False
_folder_of_records = ""
"""The folder for compiles that fail; empty if they are not written."""
_has_values = False
_stacks: MemoryFile | None = None
_program: MemoryFile | None = None


def prepare_process(on_failure: str = "", folder: str = "", has_values: bool = False) -> None:
    """Prepare this process now, and its compiler when it is imported.

    Only the first call has an effect. It has none under ``reprokit capture``, which records more,
    and none on a system other than Linux. With ``on_failure``, a compile that fails is written
    below ``folder``, with values of small tensors if ``has_values`` is set.
    """
    global _is_prepared
    if not _is_wanted():
        return
    try:
        if on_failure:
            _keep_for_failures(folder, has_values)
        if not _is_prepared:
            _is_prepared = True
            _prepare()
    except Exception:  # no memory, or a module that cannot be loaded: the program goes on
        return


def prepare_at_import() -> None:
    """Prepare this process when it imports torch or Triton (``REPROKIT_WATCH=1``); with
    ``REPROKIT_WATCH=record`` also write a compile that fails.
    """
    if _is_wanted():
        import_hook.wait_for_modules(
            {"torch": (_prepare_as_set, None), "triton": (_prepare_as_set, None)}
        )


def _prepare_as_set() -> None:
    is_recorded = os.environ.get("REPROKIT_WATCH") == "record"
    prepare_process("record" if is_recorded else "", "reprokit-out")


def _keep_for_failures(folder: str, has_values: bool) -> None:
    """Keep the traces of compiles, from when the compiler is imported."""
    global _folder_of_records, _has_values
    _folder_of_records, _has_values = os.path.abspath(folder), has_values
    if "torch._dynamo" in sys.modules:
        _add_handler()


def _add_handler() -> None:
    from .failures import failure_records

    failure_records.keep_for_failures(_folder_of_records, _has_values)


def _is_wanted() -> bool:
    return sys.platform == "linux" and not os.environ.get(run_names.RUN_DIR_VARIABLE)


def _prepare() -> None:
    from .record import journal

    journal.write_to_memory()
    _permit_reading()
    os.register_at_fork(after_in_child=_permit_reading_after_fork)
    hooks = {"torch._dynamo": _watch_dynamo, "torch._inductor.compile_fx": _watch_inductor}
    for name, hook in hooks.items():
        if name in sys.modules:
            hook()
    import_hook.wait_for_modules(
        {name: (None, hook) for name, hook in hooks.items() if name not in sys.modules}
    )


def _permit_reading() -> None:
    """Permit other processes to read the stacks of this one, and write them on a signal."""
    global _stacks
    # a program without torch must not pay for these imports (REPROKIT_WATCH)
    import ctypes
    import faulthandler

    from ..core.shared.contract.journal_format import MEMORY_STACKS, STACKS_SIGNAL
    from .record import memory_journal

    _take_programs()
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)
    if _stacks is not None:
        _stacks.close()
    elif _is_handled(STACKS_SIGNAL):
        return  # by the program, perhaps in C code
    _stacks = memory_journal.MemoryFile(MEMORY_STACKS)
    faulthandler.register(STACKS_SIGNAL, file=_stacks.fd, all_threads=True, chain=False)


def _take_programs() -> None:
    """Run the program in a memory file on a signal, in the main thread."""
    global _program
    import signal

    from ..core.shared.contract.journal_format import MEMORY_PROGRAM, PROGRAM_BYTES, PROGRAM_SIGNAL
    from .record import memory_journal

    if _program is not None:
        _program.close()
    elif _is_handled(PROGRAM_SIGNAL):
        return
    else:
        try:
            signal.signal(PROGRAM_SIGNAL, _run_program)
        except ValueError:
            return  # only the main thread may set it
    _program = memory_journal.MemoryFile(MEMORY_PROGRAM, PROGRAM_BYTES)


def _run_program(number: int, frame: object) -> None:
    try:
        path = _program.read_text() if _program is not None else ""
        if path:
            with open(path) as file:
                exec(file.read(), {})  # noqa: S102  # that of reprokit attach
    except BaseException:  # the program of the user must not see it
        return


def _permit_reading_after_fork() -> None:
    try:
        _permit_reading()
    except Exception:  # a limit on descriptors: its stacks are read as those of any other process
        return


def _is_handled(number: int) -> bool:
    """Return whether this process handles, ignores or blocks a signal."""
    with open("/proc/self/status") as file:
        for line in file:
            is_mask = line.startswith(("SigCgt:", "SigIgn:", "SigBlk:"))
            if is_mask and int(line.split()[1], 16) & 1 << (number - 1):
                return True
    return False


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
        if _folder_of_records:
            _add_handler()


def _watch_inductor() -> None:
    from .torch_hooks import phases_and_graphs, symbols

    symbols.attempt_hook(phases_and_graphs.hook_nodes)
