"""A report of more than 64 KB, whose process is joined before its result is read.

https://github.com/jonatanjacobsson/ifcpipeline/pull/28 and
https://github.com/python/cpython/issues/73983

Truth: the child has run check, and cannot end before its feeder thread has written the report into
the pipe. The pipe is full. main waits in join for the end of the child and reads only afterwards.

Words: queue|pipe
Run: {python} process_join_full_queue.py
Attach: root
"""

import multiprocessing


def check(model: str, results: "multiprocessing.Queue[list[str]]") -> None:
    report = [f"{model}: wall {number} has no door" for number in range(20_000)]
    results.put(report)
    print("checked", flush=True)


def main() -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[list[str]] = context.Queue()
    worker = context.Process(target=check, args=("house.ifc", results))
    worker.start()
    print("ready", flush=True)
    worker.join()  # HANG
    print(len(results.get()))


if __name__ == "__main__":
    main()
