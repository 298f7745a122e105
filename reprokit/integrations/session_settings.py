"""The settings of a session of the pytest plugin, from the command line or the ini file.

pytest imports this module at each start, so it imports only pytest.
"""

from __future__ import annotations

import argparse

import pytest


def read_duration(text: str) -> float:
    """Return the seconds of a duration such as ``10m``.

    Raises argparse.ArgumentTypeError if it is none, or 0.
    """
    from reprokit.host.request.durations import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 90s or 10m")
    return seconds


def read_count(text: str) -> int:
    """Return a number of captures. Raises argparse.ArgumentTypeError if it is none."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of captures")
    return int(text)


def time_limit_s(config: pytest.Config) -> float:
    """Return the seconds that a test may run.

    Raises pytest.UsageError if the ini file has no number.
    """
    chosen: float | None = config.option.reprokit_timeout
    return chosen if chosen is not None else _read_ini(config, "reprokit_timeout", read_duration)


def max_captures(config: pytest.Config) -> int:
    """Return how many tests are captured at most.

    Raises pytest.UsageError if the ini file has no number.
    """
    chosen: int | None = config.option.reprokit_max
    return chosen if chosen is not None else int(_read_ini(config, "reprokit_max", read_count))


def _read_ini(config: pytest.Config, name: str, read: object) -> float:
    assert callable(read)
    try:
        return float(read(str(config.getini(name))))
    except argparse.ArgumentTypeError as problem:
        raise pytest.UsageError(f"{name}: {problem}") from None
