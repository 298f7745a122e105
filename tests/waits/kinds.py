"""Healthy programs that compile a function and then wait: ``python kinds.py KIND COMPILED
SECONDS``.

Each waits for ``SECONDS``, uses its compiled function once more, and ends with status 0. A tool
that watches one must not kill it, call it a hang, or change its output. ``barrier`` needs two ranks
(``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ``MASTER_PORT``). ``kernel`` needs the package
ipykernel.
"""

import asyncio
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time

KINDS = (
    "sleep",
    "server",
    "queue",
    "loader",
    "pipe",
    "checkpoint",
    "input",
    "asyncio",
    "kernel",
    "barrier",
)
COMPILED = ("inductor", "aot_eager", "training", "graph_break", "dynamic")


def compile_something(how):
    """Compile a function, call it once, and return a function that calls it again."""
    import torch

    if how == "training":
        model = torch.nn.Linear(4, 4)
        step = torch.compile(lambda x: model(x).relu().sum())
        return lambda: step(torch.ones(2, 4)).backward()
    if how == "graph_break":

        def function(x):
            x = x + 1
            torch._dynamo.graph_break()
            return x * 2

        compiled = torch.compile(function, backend="aot_eager")
        return lambda: compiled(torch.ones(3))
    options = {"dynamic": True, "backend": "aot_eager"} if how == "dynamic" else {"backend": how}
    compiled = torch.compile(lambda x: (x.sin() + 1).sum(), **options)
    return lambda: compiled(torch.ones(3))


def wait_sleep(seconds):
    time.sleep(seconds)


def wait_server(seconds):
    """Run a socket server whose first client comes late."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        threading.Timer(seconds, lambda: socket.create_connection(address).close()).start()
        server.accept()[0].close()


def wait_queue(seconds):
    """Run a worker that waits for its first job, which a timer thread adds."""
    jobs = queue.Queue()
    done = threading.Thread(target=jobs.get, name="worker")
    done.start()
    threading.Timer(seconds, jobs.put, ["job"]).start()
    done.join()


class Slow:
    """A data set whose first item takes long, as on a cold network file system."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 2

    def __getitem__(self, index):
        if index == 0:
            time.sleep(self.seconds)
        if index >= 2:
            raise IndexError
        return index


def wait_loader(seconds):
    import torch

    assert len(list(torch.utils.data.DataLoader(Slow(seconds), num_workers=1))) == 2


def wait_pipe(seconds):
    """Read a file that blocks, as on a slow file system: a FIFO with a late writer."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "data")
        os.mkfifo(path)
        writer = subprocess.Popen(["sh", "-c", f"exec 3>{path}; sleep {seconds}; echo data >&3"])
        with open(path) as file:
            assert file.read() == "data\n"
        writer.wait()


def wait_checkpoint(seconds):
    """Wait for a child process that uploads a checkpoint."""
    import torch

    with tempfile.NamedTemporaryFile() as file:
        torch.save({"weight": torch.ones(100)}, file.name)
        subprocess.run(["sh", "-c", f"sleep {seconds}; cat {file.name} > /dev/null"], check=True)


def wait_input(seconds):
    """Wait at a terminal for a person who answers late."""
    leader, follower = os.openpty()
    os.dup2(follower, 0)
    sys.stdin = open(0)  # noqa: SIM115 - the program's own
    threading.Timer(seconds, os.write, [leader, b"yes\n"]).start()
    assert input("go on? ") == "yes"


def wait_asyncio(seconds):
    """Run an asyncio server whose first client comes late."""

    async def main():
        served = asyncio.Event()

        async def answer(reader, writer):
            writer.close()
            served.set()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        threading.Timer(seconds, lambda: socket.create_connection(address).close()).start()
        await served.wait()
        server.close()

    asyncio.run(main())


def wait_kernel(seconds):
    """Run an idle Jupyter kernel in this process, and exit as on a shutdown request."""
    from ipykernel.kernelapp import IPKernelApp

    def leave():
        print("done", flush=True)
        os._exit(0)

    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder
        app = IPKernelApp.instance(
            connection_file=os.path.join(folder, "kernel.json"), outstream_class=None
        )
        app.initialize([])
        threading.Timer(seconds, leave).start()
        app.start()


def wait_barrier(seconds):
    """Wait in a gloo barrier for a rank that loads its data for longer."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        time.sleep(seconds)
    dist.barrier()
    dist.destroy_process_group()


def main(kind, how, seconds):
    again = compile_something(how)
    again()
    print("compiled", flush=True)
    globals()[f"wait_{kind}"](seconds)
    again()
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
