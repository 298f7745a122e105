"""Turn a failing, hanging or silently wrong ``torch.compile`` run into a reproduction pack."""

from typing import Any

__version__ = "0.2.0"


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%reprokit``; IPython calls this for ``%load_ext reprokit``."""
    import importlib

    # by name: every module imports this package, and so must not depend on the magic
    importlib.import_module("reprokit.integrations.cell_magic").register_magic(shell)
