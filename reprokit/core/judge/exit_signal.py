"""Find the signal that ended a target, also if a launcher started it."""

from __future__ import annotations

import signal

from reprokit.core.records.observation import Observation


def signal_of(seen: Observation) -> str | None:
    """Return the name of the signal that ended the target; None if there was none.

    Shells and torchrun exit with status 128 + n for signal n.
    """
    status = seen.exit_status
    number = None
    if status is not None and status < 0:
        number = -status
    elif status is not None and 128 < status < 128 + 65 and seen.raised is None:
        number = status - 128
    if number is None:
        if seen.faults and status not in (0, None) and seen.raised is None:
            own = [f for f in seen.faults if f.pid == seen.main_pid]
            return _of_headline((own or list(seen.faults))[0].headline)
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _of_headline(headline: str) -> str:
    for words, name in (
        ("Segmentation fault", "SIGSEGV"),
        ("Aborted", "SIGABRT"),
        ("Bus error", "SIGBUS"),
        ("Floating", "SIGFPE"),
        ("Illegal", "SIGILL"),
    ):
        if words in headline:
            return name
    return headline
