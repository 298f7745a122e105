"""Start a Jupyter kernel and run a file in it as one cell, as a front end does.

python kernel_session.py FILE [--cell CODE ...]
"""

import sys
import time

from jupyter_client import KernelManager


def main() -> None:
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(60)
    print("ready", flush=True)
    with open(sys.argv[1]) as file:
        client.execute(file.read(), allow_stdin=True)
    try:
        while True:
            time.sleep(60)
    finally:
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()
