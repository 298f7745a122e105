"""A healthy Pool and a healthy executor, whose tasks take some seconds.

Truth: it advances; one task in three takes several seconds.

Run: {python} pool_healthy.py
Attach: root
Modes: busy
"""

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor


def task(number: int) -> int:
    time.sleep(6 if number % 3 == 0 else 0.5)
    return number


def main() -> None:
    context = multiprocessing.get_context("fork")
    with context.Pool(2) as pool, ThreadPoolExecutor(1) as executor:
        print("ready", flush=True)
        for number, _ in enumerate(pool.imap(task, range(10_000))):
            executor.submit(time.sleep, 1).result()
            if number % 20 == 0:
                print("done", number, flush=True)


if __name__ == "__main__":
    main()
