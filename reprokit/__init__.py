"""Turn a failing, hanging or silently wrong ``torch.compile`` run into a reproduction pack."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes 13 ms, which each Python process with REPROKIT_WATCH would pay
    from contextlib import AbstractContextManager
    from typing import Any

__version__ = "0.2.0"


def watch(on_failure: str = "", folder: str = "reprokit-out") -> None:
    """Prepare this process, so that ``reprokit attach`` can say more about it if it hangs.

    Other processes of the same user may then read its stacks, it writes them itself on a signal,
    and its last compile phases are in memory. Call it once, at the start of the program. It has no
    effect under ``reprokit capture``, and on systems other than Linux.

    With ``on_failure="record"``, what torch traces of its last compiles is in memory too, at most
    32 MiB. When a compile raises, it is written to a file below ``folder``, once for each failure
    and at most 50 MiB, and the program goes on as it would. ``reprokit capture FILE`` makes a
    proved repro of it. The file has the graphs with the lines of the program and the sizes and
    types of their inputs, and no values.

    Raises:
        ValueError: ``on_failure`` is something else.
    """
    import importlib

    if on_failure not in ("", "record"):
        raise ValueError(f'on_failure is {on_failure!r}, and may be "record" or ""')
    importlib.import_module("reprokit.agent.prepare").prepare_process(on_failure, folder)


def record(folder: str = "reprokit-out") -> "AbstractContextManager[str]":
    """Write what torch traces of each compile inside a ``with`` block to a file below ``folder``.

    The block gets the path of the file. ``reprokit capture FILE`` says what failed in it, and makes
    a proved repro. Functions that torch has compiled before are not compiled again.
    """
    import importlib

    module = importlib.import_module("reprokit.agent.failure_records")
    recorded: AbstractContextManager[str] = module.record_compiles(folder)
    return recorded


def load_ipython_extension(shell: "Any") -> None:
    """Add the cell magic ``%%reprokit``; IPython calls this for ``%load_ext reprokit``."""
    import importlib

    # by name: every module imports this package, and so must not depend on the magic
    importlib.import_module("reprokit.integrations.cell_magic").register_magic(shell)
