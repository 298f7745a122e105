"""Open a ledger for a command. Refused rows and each failure are reported in one line."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reprokit.cli.shared import out

if TYPE_CHECKING:
    from reprokit.host.nightly.ledger.database import Ledger


@contextlib.contextmanager
def open_for_command(
    output_dir: Path,
    ledger_path: Path | None,
    is_new_ok: bool = False,
    prints_refused: bool = False,
) -> Iterator[Ledger]:
    """Open the ledger; with ``prints_refused``, the caller prints the refused rows itself.

    Raises BadInput if the ledger cannot be used.
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.nightly.ledger import ledger_file

    path = ledger_path or output_dir / "ledger.sqlite"
    try:
        with ledger_file.open_ledger(path, is_new_ok) as store:
            if store.refused and not prints_refused:
                more = len(store.refused) - 1
                out.print_line(
                    "refused"
                    f" {store.refused[0]}{f'; and rows of {more} other tables' if more else ''}"
                )
            yield store
    except (sqlite3.Error, UnicodeDecodeError) as problem:
        raise BadInput(
            f"cannot use the ledger {path}: {problem}; name a different --ledger, or see"
            " https://reprokit.github.io/reprokit/reference/ledger/"
        ) from problem
