"""Outlive the watchdog: when its end of the pipe closes without a word, end what carries its run id.

Runs as ``python -I -S guardian.py RUN_ID`` with standard library only. SIGKILL on reprokit closes the
pipe; a normal end writes one byte first.
"""

import contextlib
import os
import signal
import sys
import time


def main() -> None:
    """Wait for the pipe, then clean up if nobody said goodbye."""
    mark = f"REPROKIT_RUN_ID={sys.argv[1]}".encode()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.read(0, 1):
        return
    for _ in range(25):
        victims = _victims(mark)
        if not victims:
            return
        for pid in victims:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)


def _victims(mark: bytes) -> set[int]:
    """Processes that carry the mark, and their descendants: a child may have been given another environment."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{name}/stat", "rb") as file:
                text = file.read()
            state, parent = text[text.rindex(b")") + 2 :].split()[:2]
            if state in (b"Z", b"X"):
                continue
            parents[int(name)] = int(parent)
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found.add(int(name))
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    return found


if __name__ == "__main__":
    main()
