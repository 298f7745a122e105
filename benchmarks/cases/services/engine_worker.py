"""A server, an engine process that schedules requests, and a worker process with the model."""

from __future__ import annotations

import multiprocessing

from http_server import QUEUE, serve
from jobs import Jobs


def run_worker(pipe: object) -> None:
    jobs = Jobs()
    pipe.send("ready")
    while True:
        jobs.run(pipe.recv())
        pipe.send("done")


def run_engine(requests: object, answers: object) -> None:
    mine, theirs = context.Pipe()
    context.Process(target=run_worker, args=(theirs,)).start()
    mine.recv()
    answers.put("ready")
    while True:
        number, name = requests.get()
        mine.send(name)
        mine.recv()
        answers.put(number)


def forward(requests: object, answers: object) -> None:
    """Send the requests of the server to the engine, one at a time."""
    while True:
        name, answer = QUEUE.get()
        requests.put((0, name))
        answers.get()
        answer.put(b"")


context = multiprocessing.get_context("spawn")

if __name__ == "__main__":
    to_engine, from_engine = context.Queue(), context.Queue()
    context.Process(target=run_engine, args=(to_engine, from_engine)).start()
    from_engine.get()
    serve(forward, to_engine, from_engine)
