"""Turn a failing, hanging or silently wrong ``torch.compile`` run into a reproduction pack."""

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import takes 13 ms, which each Python process with REPROKIT_WATCH would pay
    from typing import Any

__version__ = "0.2.0"


def watch() -> None:
    """Prepare this process, so that ``reprokit attach`` can say more about it if it hangs.

    Other processes of the same user may then read its stacks, it writes them itself on a signal,
    and its last compile phases are in memory. Call it once, at the start of the program. It has no
    effect under ``reprokit capture``, and on systems other than Linux.
    """
    import importlib

    importlib.import_module("reprokit.agent.prepare").prepare_process()


def load_ipython_extension(shell: "Any") -> None:
    """Add the cell magic ``%%reprokit``; IPython calls this for ``%load_ext reprokit``."""
    import importlib

    # by name: every module imports this package, and so must not depend on the magic
    importlib.import_module("reprokit.integrations.cell_magic").register_magic(shell)
