"""How many generated inputs a test reads."""

from __future__ import annotations

import hypothesis

SHARE = 5
"""The long session reads this times as many inputs as the others, which read the same ones in each
run.
"""


def examples(most: int) -> int:
    """Return ``most`` in the long session, and a share of it where the inputs are the same in each
    run, see ``tests/conftest.py``.
    """
    return -(-most // SHARE) if hypothesis.settings.default.derandomize else most
