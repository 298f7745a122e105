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
        found = False
        for name in os.listdir("/proc"):
            if not name.isdigit() or int(name) == os.getpid():
                continue
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    os.kill(int(name), signal.SIGKILL)
                    found = True
        if not found:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    main()
