"""A server of a compiled model: two threads take two locks in different orders."""

import queue
import threading

import torch

model = torch.compile(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()))
model_lock, stats_lock = threading.Lock(), threading.Lock()
requests, answers = queue.Queue(), queue.Queue()
is_answering, is_reporting = threading.Event(), threading.Event()
stats = {"answers": 0}


def serve():
    while True:
        x = requests.get()
        with torch.no_grad(), model_lock:
            y = model(x)
            is_answering.set()
            is_reporting.wait()
            with stats_lock:
                stats["answers"] += 1
        answers.put(y)


def report():
    is_answering.wait()
    with stats_lock:
        is_reporting.set()
        with model_lock:
            print("answers:", stats["answers"], flush=True)


def main():
    threading.Thread(target=serve, name="serve", daemon=True).start()
    threading.Thread(target=report, name="report", daemon=True).start()
    print("the server is ready", flush=True)
    for size in (4, 8):
        requests.put(torch.randn(size, 16))
        print("answer:", answers.get().sum().item(), flush=True)


if __name__ == "__main__":
    main()
