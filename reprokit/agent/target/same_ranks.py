"""Find the simulated ranks that have the graphs of rank 0, without tracing them again.

After rank 0 is compiled, a fork of it becomes each other rank in turn: it joins the process group
as that rank, builds the model and calls it. Dynamo reuses the code of rank 0 only if all of its
guards pass, so a rank that compiles nothing has the same graph. With several graphs, or symbolic
sizes, a rank could use a different one of them, so every rank is traced.

A call that returns the rank, and that Dynamo replaces with its result, has no guard. So the program
must not contain such a call: its own files, and the names in all other code that Dynamo traced, are
searched for words such as ``rank``. If there is one, every rank is traced.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ...core.shared.contract import events
from ..record import graph_recorder, journal, process_start, program_code

_RANK_WORDS = re.compile(r"rank|coordinate|environ|getenv", re.IGNORECASE)
"""Parts of the names of what returns the rank; ``environ`` and ``getenv`` read RANK."""


def find_same_ranks(count: int, run_rank: Callable[[], None]) -> set[int]:
    """Return the ranks of 1 to ``count - 1`` that have the graphs of rank 0, which this process is.

    ``run_rank`` joins the group as the rank of the environment, builds the model and calls it. It
    runs in a fork, which journals nothing.
    """
    if graph_recorder.entered != 1 or graph_recorder.has_symbolic_sizes or _reads_rank():
        return set()
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:  # too many processes, or too little memory: each rank is traced
        os.close(reading)
        os.close(writing)
        return set()
    if child == 0:
        try:
            os.close(reading)
            process_start.end_with_parent()
            journal.stop()
            graph_recorder.refuses_graphs = True
            for rank in range(1, count):
                if _compiles_nothing(rank, run_rank):
                    os.write(writing, bytes([rank % 256, rank // 256]))
        finally:
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            found = pipe.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.waitpid(child, 0)
    same = {low + 256 * high for low, high in zip(found[::2], found[1::2], strict=False)}
    journal.write_event(events.SameRanks(ranks=sorted(same)))
    return same


def _compiles_nothing(rank: int, run_rank: Callable[[], None]) -> bool:
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
    try:
        import torch.distributed as dist
        from torch.distributed.tensor import debug

        dist.destroy_process_group()
        # its entries have the mesh of the rank before, which is equal but a different object
        clear: Any = debug._clear_sharding_prop_cache
        clear()
        graph_recorder.has_refused = False
        run_rank()
    except BaseException:  # the rank is traced, and that fails in the same way
        return False
    return not graph_recorder.has_refused


def _reads_rank() -> bool:
    """Return whether the program may use its rank in a way for which Dynamo has no guard."""
    names = (
        name for code in graph_recorder.traced_code for name in (*code.co_names, *code.co_freevars)
    )
    return any(map(_RANK_WORDS.search, names)) or any(map(_has_rank_word, _own_files()))


def _own_files() -> Iterable[str]:
    """Yield the files of the loaded modules that are not in a library."""
    libraries = program_code.library_folders()
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and not (
            name.startswith("torch.")  # the file of torch.ops does not exist
            or name in ("sitecustomize", "usercustomize")
            or os.path.abspath(path).startswith(libraries)
        ):
            yield path


def _has_rank_word(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return _RANK_WORDS.search(file.read()) is not None
    except OSError:
        return True
