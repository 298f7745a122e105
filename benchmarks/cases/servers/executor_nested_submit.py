"""A build that submits its parts to the executor in which it runs itself.

https://github.com/python/cpython/issues/141617 (the deadlock of the documentation)

Truth: both threads of the pool run build_package and wait for the results of build_file. Those
calls are in the queue of the same pool, in which no thread is free. The main thread waits for them.

Words: pool|executor
Run: {python} executor_nested_submit.py
Attach: root
"""

import time
from concurrent.futures import ThreadPoolExecutor

pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="build")


def build_file(name: str) -> int:
    time.sleep(0.1)
    return len(name)


def build_package(package: str) -> int:
    time.sleep(0.5)  # read the list of files
    parts = [pool.submit(build_file, f"{package}/{number}.c") for number in range(4)]
    return sum(part.result() for part in parts)  # HANG


def main() -> None:
    packages = [pool.submit(build_package, name) for name in ("core", "net", "ui")]
    print("ready", flush=True)
    print(sum(package.result() for package in packages))  # HANG


if __name__ == "__main__":
    main()
