"""A multiprocessing.Pool, one worker of which the kernel kills for memory.

https://github.com/yumorishita/LiCSBAS2/pull/164 and
https://github.com/mapillary/OpenSfM/issues/190 (bpo-22393)

Truth: a worker was ended by SIGKILL while it ran a task. The pool started a new worker, but the
result of the lost task never comes, and main waits for it in pool.map.

Words: killed|SIGKILL|died|ended|lost
Run: {python} pool_worker_killed.py
Attach: root
"""

import multiprocessing
import os
import signal
import time


def unwrap(tile: int) -> int:
    time.sleep(0.2)
    if tile == 5:  # the kernel kills the process that uses the most memory
        os.kill(os.getpid(), signal.SIGKILL)
    return tile * tile


def main() -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool:
        print("ready", flush=True)
        print(sum(pool.map(unwrap, range(10), chunksize=1)))  # HANG


if __name__ == "__main__":
    main()
