"""How many generated inputs a test reads."""

from __future__ import annotations

SHARE = 5
"""The long session reads this times as many inputs as the others, which read the same ones in each
run.
"""
_is_long = False


def set_session(is_long: bool) -> None:
    """Choose the session before the tests are imported."""
    global _is_long
    _is_long = is_long


def examples(most: int) -> int:
    """Return ``most`` in the long session, and a share of it in the others."""
    return most if _is_long else -(-most // SHARE)
