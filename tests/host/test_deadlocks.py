"""Threads, tasks and processes that wait for each other are found, in real programs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprokit.core.judge.hangs import wait_graph, wait_words, waiting
from reprokit.core.judge.stacks.main_process import MainProcess
from reprokit.core.records.observation import Observation
from reprokit.host.system import process_tree
from reprokit.host.watch.hang_evidence import EvidenceGatherer
from reprokit.host.watch.journal_tail import JournalFollower
from reprokit.host.watch.sampler import Sampler
from tests.support.environments import clean_environ
from tests.support.processes import wait_until

SERVER = """
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
"""
DEADLOCKS = {
    "jobs of one pool": (
        "from concurrent.futures import ThreadPoolExecutor\nimport time\n"
        "pool = ThreadPoolExecutor(2)\n"
        "def outer():\n    time.sleep(0.2)\n    return pool.submit(int).result()\n"
        "jobs = [pool.submit(outer) for _ in range(2)]\n"
        "print('ready', flush=True)\n[job.result() for job in jobs]\n",
        "all 2 workers of a pool wait for jobs",
        "at deadlock.py:6 in outer",
    ),
    "join before the queue is read": (
        "import multiprocessing\n"
        "def work(queue):\n    queue.put('x' * 1_000_000)\n"
        "queue = multiprocessing.get_context('fork').Queue()\n"
        "process = multiprocessing.get_context('fork').Process(target=work, args=(queue,))\n"
        "process.start()\nprint('ready', flush=True)\nprocess.join()\n",
        "sends what is left in a queue before it ends, and nobody reads it",
        "waits for a process to end at deadlock.py:8",
    ),
    "producer that ended": (
        "import queue, threading\nitems = queue.Queue()\n"
        "threading.Thread(target=items.put, args=(1,)).start()\nitems.get()\n"
        "print('ready', flush=True)\nitems.get()\n",
        "no other thread of the process is left",
        "waits for an item of a queue at deadlock.py:6",
    ),
    "loop that waits for itself": (
        "import asyncio\nasync def inner():\n    pass\nasync def outer():\n"
        "    loop = asyncio.get_running_loop()\n    print('ready', flush=True)\n"
        "    asyncio.run_coroutine_threadsafe(inner(), loop).result()\nasyncio.run(outer())\n",
        "the thread of the event loop waits",
        "waits for a future at deadlock.py:7 in outer",
    ),
    "tasks without an event": (
        "import asyncio\nasync def main():\n    print('ready', flush=True)\n"
        "    await asyncio.get_running_loop().create_future()\nasyncio.run(main())\n",
        "no task of the event loop waits for a socket or a time",
        "deadlock.py:5",
    ),
    "lost job of a pool": (
        "import multiprocessing, os, signal, time\n"
        "def work(number):\n"
        "    if number:\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    result = pool.map_async(work, [0, 1], chunksize=1)\n"
        "    print('ready', flush=True)\n    result.get()\n",
        "no worker of the pool has a job",
        "waits for the result of a pool at deadlock.py:8",
    ),
    "lock that was held at a fork": (
        "import multiprocessing, threading, time\nlock = threading.Lock()\n"
        "def work():\n    with lock:\n        pass\n"
        "process = multiprocessing.get_context('fork').Process(target=work)\n"
        "with lock:\n    process.start()\nprint('ready', flush=True)\nprocess.join()\n",
        "it was held at a fork, or by a thread that ended",
        "waits for the lock at deadlock.py:4 in work",
    ),
    "full queue of processes": (
        "import multiprocessing\nfork = multiprocessing.get_context('fork')\nitems = fork.Queue(1)\n"
        "def work():\n    for _ in range(3):\n        items.put(1)\n"
        "process = fork.Process(target=work)\nprocess.start()\nprint('ready', flush=True)\n"
        "process.join()\n",
        "nobody gets the items of the queue",
        "waits for room in a queue between processes at deadlock.py:6",
    ),
    "end of its own loop": (
        SERVER + "import signal\nsignal.signal(signal.SIGALRM, lambda *_: server.shutdown())\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\nprint('ready', flush=True)\n"
        "server.serve_forever()\n",
        "waits for the end of a loop that it runs itself",
        "deadlock.py:5 in <lambda>",
    ),
    "consumer that keeps the process": (
        "import queue, threading\nitems = queue.Queue()\n"
        "def consume():\n    while True:\n        items.get()\n"
        "threading.Thread(target=consume).start()\nprint('ready', flush=True)\n",
        "they wait for each other",
        "an item of a queue at deadlock.py:5 in consume",
    ),
    "lock of a signal handler": (
        "import signal, threading\nlock = threading.Lock()\n"
        "def note(*_):\n    with lock:\n        pass\n"
        "signal.signal(signal.SIGALRM, note)\nsignal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "def main():\n    with lock:\n        print('ready', flush=True)\n        while True:\n"
        "            pass\nmain()\n",
        "the thread holds this lock itself",
        "waits for the lock at deadlock.py:4 in note",
    ),
    "pipe that nobody reads": (
        "import subprocess, sys\nprint('ready', flush=True)\n"
        "text = 'print(\"x\" * 1_000_000)'\n"
        "subprocess.Popen([sys.executable, '-c', text], stdout=subprocess.PIPE).wait()\n",
        "writes more into a pipe than it holds, and nobody reads it",
        "waits for a process to end at deadlock.py:4",
    ),
    "two processes with two locks": (
        "import multiprocessing, time\nfork = multiprocessing.get_context('fork')\n"
        "a, b = fork.Lock(), fork.Lock()\n"
        "def work(first, second):\n    with first:\n        time.sleep(0.3)\n"
        "        with second:\n            pass\n"
        "both = [fork.Process(target=work, args=row) for row in ((a, b), (b, a))]\n"
        "[p.start() for p in both]\nprint('ready', flush=True)\n[p.join() for p in both]\n",
        "",
        "a lock between processes at deadlock.py:7 in work",
    ),
    "two processes with two file locks": (
        "import fcntl, os, time\ndef work(*names):\n    kept = []\n    for name in names:\n"
        "        kept.append(open(name, 'w'))\n        fcntl.flock(kept[-1], fcntl.LOCK_EX)\n"
        "        time.sleep(0.3)\nif os.fork() == 0:\n    work('b', 'a')\n"
        "print('ready', flush=True)\nwork('a', 'b')\n",
        "they wait for each other",
        "a file lock at deadlock.py:6 in work",
    ),
    "file lock that the process holds": (
        "import fcntl\nfirst, second = open('a', 'w'), open('a', 'w')\n"
        "fcntl.flock(first, fcntl.LOCK_EX)\nprint('ready', flush=True)\n"
        "fcntl.flock(second, fcntl.LOCK_EX)\n",
        "the process holds this file lock itself",
        "a file lock at deadlock.py:5",
    ),
    "condition of the only thread": (
        "import threading\ncondition = threading.Condition()\nprint('ready', flush=True)\n"
        "with condition:\n    condition.wait()\n",
        "no other thread of the process is left",
        "waits for a condition at deadlock.py:5",
    ),
}
"""Programs, and texts of the reason and of one wait."""
IN_TURN = {
    "threads": (
        "import socket, threading\nlock = threading.Lock()\n"
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "def serve():\n    with lock:\n        server.accept()\n"
        "for _ in range(3):\n    threading.Thread(target=serve).start()\n"
        "print('ready', flush=True)\n"
    ),
    "processes with a lock": (
        "import multiprocessing, socket\nfork = multiprocessing.get_context('fork')\n"
        "def serve(server, lock):\n    with lock:\n        server.accept()\n"
        "row = socket.create_server(('127.0.0.1', 0)), fork.Lock()\n"
        "several = [fork.Process(target=serve, args=row) for _ in range(3)]\n"
        "[p.start() for p in several]\nprint('ready', flush=True)\n[p.join() for p in several]\n"
    ),
    "processes with a file lock": (
        "import fcntl, os, socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "def serve():\n    with open('lock', 'w') as file:\n"
        "        fcntl.flock(file, fcntl.LOCK_EX)\n        server.accept()\n"
        "for _ in range(3):\n    if os.fork() == 0:\n        serve()\n"
        "print('ready', flush=True)\nos.wait()\n"
    ),
}
"""Servers of which one thread or process accepts, and the others wait for its lock."""
HEALTHY = {
    **{f"{name} that accept in turn": text for name, text in IN_TURN.items()},
    "idle server": SERVER + "print('ready', flush=True)\nserver.serve_forever()\n",
    "workers, and a signal that ends": (
        "import queue, threading\nitems, stop = queue.Queue(), threading.Event()\n"
        "def consume():\n    while True:\n        items.get()\n"
        "threading.Thread(target=consume, daemon=True).start()\nprint('ready', flush=True)\n"
        "stop.wait()\n"
    ),
    "future of a job that sleeps": (
        "from concurrent.futures import ThreadPoolExecutor\nimport time\n"
        "pool = ThreadPoolExecutor(2)\njob = pool.submit(time.sleep, 60)\n"
        "print('ready', flush=True)\njob.result()\n"
    ),
    "timer": (
        "import threading\nstop = threading.Event()\n"
        "def beat():\n    while not stop.wait(60):\n        pass\n"
        "thread = threading.Thread(target=beat)\nthread.start()\nprint('ready', flush=True)\n"
        "thread.join()\n"
    ),
    "queue that is asked now and then": (
        "import queue\nitems = queue.Queue()\nprint('ready', flush=True)\n"
        "while True:\n    try:\n        items.get(timeout=60)\n    except queue.Empty:\n"
        "        items.put(1)\n"
    ),
    "future with a limit": (
        "from concurrent.futures import Future\nprint('ready', flush=True)\n"
        "Future().result(timeout=60)\n"
    ),
    "job in a pool of processes": (
        "import multiprocessing, time\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "    result = pool.map_async(time.sleep, [60])\n    print('ready', flush=True)\n"
        "    result.get()\n"
    ),
    "child that waits for a socket": (
        "import multiprocessing, socket\n"
        "def work():\n    socket.create_server(('127.0.0.1', 0)).accept()\n"
        "process = multiprocessing.get_context('fork').Process(target=work)\nprocess.start()\n"
        "print('ready', flush=True)\nprocess.join()\n"
    ),
    "server of asyncio": (
        "import asyncio\nasync def main():\n"
        "    server = await asyncio.start_server(print, '127.0.0.1', 0)\n"
        "    print('ready', flush=True)\n    await server.serve_forever()\nasyncio.run(main())\n"
    ),
    "condition, and a signal that ends": (
        "import signal, threading\ncondition = threading.Condition()\n"
        "def stop(*_):\n    with condition:\n        condition.notify()\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('ready', flush=True)\n"
        "with condition:\n    condition.wait()\n"
    ),
    "loop that waits for a signal": (
        "import asyncio, signal\nasync def main():\n    stop = asyncio.Event()\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)\n"
        "    print('ready', flush=True)\n    await stop.wait()\nasyncio.run(main())\n"
    ),
    "task that sleeps": (
        "import asyncio\nasync def main():\n    print('ready', flush=True)\n"
        "    await asyncio.sleep(60)\nasyncio.run(main())\n"
    ),
    "call from a thread into a loop": (
        "import asyncio, threading\nloop = asyncio.new_event_loop()\n"
        "threading.Thread(target=loop.run_forever, daemon=True).start()\n"
        "job = asyncio.run_coroutine_threadsafe(asyncio.sleep(60), loop)\n"
        "print('ready', flush=True)\njob.result()\n"
    ),
    "pipe to a program that is not Python": (
        "import subprocess\nchild = subprocess.Popen(['sleep', '60'], stdout=subprocess.PIPE)\n"
        "print('ready', flush=True)\nchild.communicate()\n"
    ),
    "lock of a thread that sleeps": (
        "import threading, time\nlock = threading.Lock()\n"
        "def hold():\n    with lock:\n        time.sleep(60)\n"
        "threading.Thread(target=hold).start()\ntime.sleep(0.1)\nprint('ready', flush=True)\n"
        "with lock:\n    pass\n"
    ),
}


def observe(text: str, tmp_path: Path) -> Observation:
    """Return what is seen of a program after its line ``ready``."""
    for name in ("stacks", "journal"):
        (tmp_path / "run" / name).mkdir(parents=True)
    (tmp_path / "deadlock.py").write_text(text)
    with subprocess.Popen(
        [sys.executable, "deadlock.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
        env=clean_environ(),
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            time.sleep(1)
            watch = Sampler(tmp_path / "run" / "samples.csv", process.pid)
            follower = JournalFollower(tmp_path / "run" / "journal", 0)
            gatherer = EvidenceGatherer(tmp_path / "run", process.pid, follower, watch)
            gatherer.gather_quietly(MainProcess(process.pid), gap_s=0.3)
            evidence = gatherer.make_evidence(time.monotonic())
            dumps = tuple(gatherer.dumper.dumps)
            gatherer.close()
            watch.close()
        finally:
            family = process_tree.family_of(process.pid)
            for member in family:
                member.kill()
            assert wait_until(lambda: all(process_tree.has_ended(one.pid) for one in family[1:]))
    return Observation(dumps=dumps, evidence=evidence, main_pid=process.pid, is_attached=True)


@pytest.mark.parametrize("kind", DEADLOCKS)
def test_a_deadlock_is_found_with_its_lines(kind: str, tmp_path: Path) -> None:
    """Its reason is said in words, and the lines are those of the program."""
    text, reason, line = DEADLOCKS[kind]
    seen = observe(text, tmp_path)
    stuck = wait_graph.find_stuck(seen)
    assert stuck, list(wait_graph.waits_of(seen))
    rows = wait_words.describe_stuck(stuck)
    assert reason in wait_words.why_stuck(stuck, seen).words
    assert any(line in row for row in rows), rows


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_program_that_may_go_on_is_no_deadlock(kind: str, tmp_path: Path) -> None:
    """A time, a socket or a different program may end its waits, or it only waits for work."""
    seen = observe(HEALTHY[kind], tmp_path)
    assert wait_graph.find_stuck(seen) == (), list(wait_graph.waits_of(seen))


@pytest.mark.parametrize("kind", IN_TURN)
def test_servers_that_accept_in_turn_are_idle(kind: str, tmp_path: Path) -> None:
    """The wait for a lock is idle if the holder of the lock waits for a connection."""
    seen = observe(IN_TURN[kind], tmp_path)
    texts = waiting.waits_of_tree(seen)
    assert texts and any("a lock whose holder waits" in text for text in texts), texts


def test_a_wait_for_a_connection_of_a_pool_is_not_idle(tmp_path: Path) -> None:
    """A different thread must return a connection, so the wait ends in a program that works. The
    package has the files and functions of SQLAlchemy.
    """
    package = tmp_path / "site-packages" / "sqlalchemy" / "pool"
    package.mkdir(parents=True)
    (package / "impl.py").write_text(
        "import queue\ndef _do_get():\n    return queue.Queue().get(timeout=3600)\n"
    )
    text = (
        "import sys\nsys.path.insert(0, 'site-packages')\nfrom sqlalchemy.pool.impl import _do_get\n"
        "print('ready', flush=True)\n_do_get()\n"
    )
    seen = observe(text, tmp_path)
    assert [wait.kind.words for wait in wait_graph.waits_of(seen)] == ["a connection of a pool"]
    assert waiting.waits_of_tree(seen) is None
