"""What a thread of Python waits for, from its stack and its system call."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.recent_dumps import stack_place
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.process_state import LockUse, ThreadState

RESTARTED = "restart_syscall"
"""The system call of a thread that a debugger has stopped during a wait with a limit, or a poll;
the kernel does not report its arguments.
"""
POOL, LOOP = "pool", "loop"
NATIVE, A_TIME = "native code", "a time"
FROM_OUTSIDE = frozenset({"a connection", "the next event"})


@dataclass(frozen=True)
class WaitKind:
    """One kind of wait."""

    name: str
    words: str = ""
    """What is waited for: ``a future``."""
    is_free: bool = False
    """The thread may go on without the program: it runs, sleeps, or waits for a peer outside."""
    needs_peers: bool = False
    """Only other processes end the wait; without known ones the thread may go on."""
    rank: int = 0
    """The kind with the largest rank explains most."""
    below: frozenset[str] = field(default_factory=frozenset)
    """What runs the thread's own code: a worker of a ``POOL``, or an event ``LOOP``."""

    @property
    def is_in_thread(self) -> bool:
        """Whether a thread of the same process ends the wait."""
        return not self.is_free and not self.needs_peers and self.name != "loop"


FREE = WaitKind("free", is_free=True)
_WORDS_OF_CALLS = (
    (re.compile("epoll_p?wait|p?poll|p?select6?"), "the next event"),
    (re.compile("accept4?"), "a connection"),
    (re.compile("recv\\w*|readv?"), "data"),
    (re.compile("send\\w*|writev?"), "room to write"),
    (re.compile("sleep|(clock_)?nanosleep|restart_syscall"), A_TIME),
    (re.compile("futex"), NATIVE),
)
"""System calls, and what a thread that may go on waits for."""
_LOCK = WaitKind("lock", "a lock", rank=5)
_QUEUE = WaitKind("queue", "an item of a queue", rank=1)
_FUTURE = WaitKind("future", "a future", rank=6)
_EVENT = WaitKind("event", "an event", rank=2)
_THREAD = WaitKind("thread", "a thread to end", rank=3)
_PROCESS = WaitKind("process", "a process to end", needs_peers=True, rank=3)
_PIPE = WaitKind("pipe", "data of a pipe", needs_peers=True, rank=2)
_FULL_PIPE = WaitKind("full pipe", "room in a pipe", needs_peers=True, rank=2)
_PROCESS_LOCK = WaitKind("process lock", "a lock between processes", rank=5)
_FILE_LOCK = WaitKind("file lock", "a file lock", needs_peers=True, rank=5)

_IMPORT_LOCK = WaitKind("import lock", "a module that a different thread imports", rank=5)

_STDLIB = tuple(
    (re.compile(file), re.compile(function), kind)
    for file, function, kind in (
        (r"queue", r"get", _QUEUE),
        (r"queue", r"put", replace(_QUEUE, name="full queue", words="room in a queue", rank=3)),
        (r"queue", r"join", replace(_THREAD, words="the tasks of a queue to be done")),
        (r"threading", r"join|_join|_wait_for_tstate_lock", _THREAD),
        (r"threading", r"_shutdown", replace(_THREAD, words="the threads that still run")),
        (r"threading", r"wait_for|Condition\.wait", replace(_EVENT, name="condition", words="a condition")),
        (r"threading", r"Barrier\.wait", replace(_EVENT, name="barrier", words="a barrier", rank=4)),
        (r"threading", r"\w*Semaphore\.\w+", replace(_LOCK, name="semaphore", words="a semaphore")),
        (r"threading", r"wait", _EVENT),
        (r"concurrent/futures/_base", r"result|exception|wait|as_completed|result_iterator", _FUTURE),
        (r"concurrent/futures/(thread|process)", r"shutdown|_python_exit", replace(_THREAD, words="the jobs of a pool to end")),
        (r"multiprocessing/pool", r"wait|get|next", WaitKind("pool", "the result of a pool", rank=6)),
        (r"multiprocessing/pool", r"join", replace(_THREAD, words="the jobs of a pool to end")),
        (r"multiprocessing/queues", r"get", replace(_PIPE, words="an item of a queue between processes")),
        (r"multiprocessing/queues", r"put", WaitKind("full process queue", "room in a queue between processes", rank=5)),
        (r"socketserver", r"shutdown", WaitKind("server", "the loop of a server to end", rank=4)),
        (r"multiprocessing/queues", r"_feed", replace(_FULL_PIPE, words="room in the pipe of a queue between processes")),
        (r"multiprocessing/queues", r"_finalize_join|join_thread", replace(_THREAD, words="the feeder thread of a queue, which sends the items that nobody has read")),
        (r"multiprocessing/connection", r"recv\w*|_recv\w*|poll|_poll|wait", _PIPE),
        (r"multiprocessing/connection", r"send\w*|_send\w*", _FULL_PIPE),
        (r"multiprocessing/synchronize", r"acquire|__enter__", _PROCESS_LOCK),
        (r"multiprocessing/(process|popen_\w+)", r"join|wait|poll", _PROCESS),
        (r"subprocess", r"wait|_wait|_try_wait|communicate|_communicate", _PROCESS),
    )
)  # fmt: skip
"""Modules of the standard library, their functions, and what a thread in them waits for. A function
with a dot is the qualified name, which Python 3.11 and newer report.
"""
_RUNS_LOOP = re.compile(r"<stdlib>/asyncio/(base_events|runners)\.py|uvloop/.*")
_OF_ASYNCIO = re.compile(r"<stdlib>/(asyncio/.*|selectors\.py)|uvloop/.*|<frozen>")
_RUNS_JOBS = re.compile(r"<stdlib>/concurrent/futures/thread\.py")
_BY_CALL = {
    "wait4": _PROCESS,
    "waitid": _PROCESS,
    "read": _PIPE,
    "readv": _PIPE,
    "poll": _PIPE,
    "ppoll": _PIPE,
    "select": _PIPE,
    "pselect6": _PIPE,
    "write": _FULL_PIPE,
    "writev": _FULL_PIPE,
    "flock": _FILE_LOCK,
    "fcntl": _FILE_LOCK,
}
"""System calls whose other end may be a process of the same program."""
_IN_PROCESS = frozenset({"futex"})
_EVENTS = frozenset({"epoll_wait", "epoll_pwait"})
_OF_LOOP = re.compile(r"descriptor \d+, (an unnamed socket|anon_inode:\[eventfd\])")
"""How an event loop is woken by threads of its own process."""
_LOOP_AT_REST = WaitKind("loop", "a task to go on", rank=4)
_COMPILER = ("torch/_dynamo/", "torch/_inductor/", "torch/_functorch/", "torch/fx/")
_MAX_CALLS = 4
"""The innermost frames of packages that are searched for a pool of connections."""
_START_OF_CHILD = ("<stdlib>/multiprocessing/process.py", "_bootstrap")
_ASIDE = re.compile(r"<agent>|<stdlib>/multiprocessing/resource_sharer\.py|.*tqdm/_monitor\.py")
"""Code whose threads end no wait of the program."""
_WORKERS = re.compile(
    r"<stdlib>/multiprocessing/(pool|resource_tracker|resource_sharer|forkserver|queues)\.py"
    r"|<stdlib>/concurrent/futures/(process|thread)\.py|torch/utils/data/_utils/\w+\.py"
)
"""Code of Python and torch that waits for work to pass on."""


def free_kind(state: ThreadState) -> WaitKind:
    """Return the kind of a thread that may go on without the program."""
    words = next((w for call, w in _WORDS_OF_CALLS if call.fullmatch(state.syscall)), "")
    if "(LISTEN)" in state.waits_for:
        words = "a connection"
    peer = re.match(r"descriptor \d+, (a socket to (?!nobody)[^,]+?)(?: \(|$)", state.waits_for)
    if peer and state.syscall.startswith(("recv", "read", "send", "write", "poll", "ppoll")):
        words = f"{'room to write' if 'write' in words else 'data'} of {peer[1]}"
    return replace(FREE, words=words)


_POOLS_OF_CONNECTIONS = (
    re.compile(
        r"(sqlalchemy/pool/impl|redis/connection|urllib3/connectionpool|psycopg_pool/\w+"
        r"|pymongo/(synchronous/)?pool|playhouse/pool)\.py"
    ),
    re.compile(r"_do_get|_?get_?conn(ection)?|checkout"),
)
"""Code of packages that waits until a different thread returns a connection."""


def kind_of(
    thread: ThreadStack, state: ThreadState, use: LockUse | None, calls: Mapping[str, str]
) -> WaitKind:
    """Return what a thread waits for.

    ``use`` is the lock that its line acquires, and ``calls`` are the calls of C code that wait for
    work, by their places.
    """
    kind = _kind_of(thread, state, use, calls)
    if state.syscall in (*_IN_PROCESS, RESTARTED) and _waits_for_connection(thread.frames):
        return replace(kind, words="a connection of a pool")
    return kind


def _waits_for_connection(frames: Sequence[Frame]) -> bool:
    """Return whether the innermost calls of packages get a connection from a pool."""
    files, functions = _POOLS_OF_CONNECTIONS
    outside = (f for f in frames if not fr.normalise_file(f.file).startswith("<stdlib>"))
    return any(
        files.fullmatch(fr.normalise_file(frame.file))
        and functions.fullmatch(_last(frame.function))
        for frame in itertools.islice(outside, _MAX_CALLS)
    )


def _kind_of(
    thread: ThreadStack, state: ThreadState, use: LockUse | None, calls: Mapping[str, str]
) -> WaitKind:
    frames = fr.normalise_frames(own_frames(thread.frames))
    if any(_ASIDE.fullmatch(frame.file) for frame in frames):
        return _QUEUE
    runners = ((POOL, _RUNS_JOBS), (LOOP, _RUNS_LOOP))
    below = frozenset(
        name for name, file in runners if any(file.fullmatch(frame.file) for frame in frames)
    )
    found = _of_stdlib(frames)
    if state.syscall in _IN_PROCESS:
        inner = thread.frames[0] if thread.frames else None
        called = calls.get(f"{inner.file}:{inner.line}", "") if inner is not None else ""
        if called == "get" or (found is None and only_serves(thread.frames)):
            found = found or _QUEUE
        if found is not None and found.needs_peers and only_serves(thread.frames):
            found = _QUEUE
        if any(f.file == "<stdlib>/multiprocessing/synchronize.py" for f in frames[:2]):
            found = _PROCESS_LOCK
        if found is None and use is not None:
            named = "" if use.waits_name == "lock" else f" {use.waits_name}"
            found = replace(_LOCK, words=f"the lock{named}")
        if found is None or found.needs_peers:
            return replace(free_kind(state), below=below)
        return replace(_freed(found, frames, state), below=below)
    if state.syscall in _EVENTS and not state.has_limit and LOOP in below:
        ends = state.waits_for.split(", descriptor ")
        if all(_OF_LOOP.fullmatch(f"descriptor {end.removeprefix('descriptor ')}") for end in ends):
            return replace(_LOOP_AT_REST, below=below)
    if state.syscall == RESTARTED and found is not None and found.needs_peers:
        return replace(found, below=below)
    if kind := _BY_CALL.get(state.syscall):
        is_same = found is not None and found.needs_peers == kind.needs_peers
        kind = found if is_same and found else kind
        return replace(_freed(kind, frames, state), below=below)
    return replace(free_kind(state), below=below)


def _freed(kind: WaitKind, frames: Sequence[Frame], state: ThreadState) -> WaitKind:
    """Return a kind that may go on if the wait has a limit. A data loader waits again then."""
    waits_again = any(frame.file == "torch/utils/data/dataloader.py" for frame in frames)
    if waits_again or not state.has_limit:
        return kind
    return free_kind(state) if kind.needs_peers else replace(FREE, words=kind.words)


_TASKS = re.compile(r"(celery/app/trace|rq/job)\.py|torch/utils/data/_utils/fetch\.py")
"""Code that runs one task of a queue, or loads one batch, which ends."""
_REQUESTS = re.compile(
    r"<stdlib>/(http/server|wsgiref/\w+)\.py|anyio/_backends/_asyncio\.py"
    r"|(gunicorn/workers|werkzeug|waitress)/\w+\.py"
)
"""Code that runs one request. A thread whose client has gone may wait in it for ever."""
_HTTP = re.compile(
    r"<stdlib>/(http/server|wsgiref/)"
    r"|(aiohttp/web|cheroot|daphne|gunicorn|hypercorn|sanic|tornado|uvicorn|waitress|werkzeug)"
)


def serve_http(dumps: Iterable[Dump]) -> bool:
    """Return whether a thread runs code of an HTTP server, which answers each request."""
    frames = (frame for dump in dumps for thread in dump.threads for frame in thread.frames)
    return any(_HTTP.match(fr.normalise_file(frame.file)) for frame in frames)


def must_end(frames: Sequence[Frame]) -> bool:
    """Return whether a thread runs something that ends: a callback of an event loop, a task of a
    queue, a request that waits for a future, or the call for a connection of a pool. Its wait is
    not idle.
    """
    if blocks_loop(frames) or _runs(frames, _TASKS) or _waits_for_connection(frames):
        return True
    found = _of_stdlib(fr.normalise_frames(own_frames(frames)))
    return found is not None and found.name == "future" and _runs(frames, _REQUESTS)


def runs_job(frames: Sequence[Frame]) -> bool:
    """Return whether a thread runs a callback of an event loop, a task of a queue or a request."""
    return blocks_loop(frames) or _runs(frames, _TASKS) or _runs(frames, _REQUESTS)


def _runs(frames: Sequence[Frame], runner: re.Pattern[str]) -> bool:
    """Return whether code of the user is on the stack, and was called by a runner."""
    files = [fr.normalise_file(frame.file) for frame in own_frames(frames)]
    at = files.index(fr.USER) if fr.USER in files else len(files)
    return any(runner.fullmatch(file) for file in files[at:])


def polls_in_library(frames: Sequence[Frame]) -> bool:
    """Return whether a package, and not the user's own code, sleeps."""
    files = (fr.normalise_file(frame.file) for frame in own_frames(frames))
    inner = next((file for file in files if not file.startswith(("<stdlib>", "<frozen>"))), fr.USER)
    return not inner.startswith(("<", "torch/"))


def call_of_package(frames: Sequence[Frame]) -> str:
    """Return the function of a package that the user's code calls and that waits; empty if it calls
    Python or torch.
    """
    inner = own_frames(frames)
    files = [fr.normalise_file(frame.file) for frame in inner]
    at = next((n for n, file in enumerate(files) if file == fr.USER), 0)
    if not at or files[at - 1].startswith(("<", "torch/")):
        return ""
    package = files[at - 1].partition("/")[0]
    calls = zip(files[at - 1 :: -1], inner[at - 1 :: -1], strict=False)
    names = (f.function for file, f in calls if file.partition("/")[0] == package)
    name = next((name for name in names if "<locals>" not in name), inner[at - 1].function)
    return f"{name} of {package.removesuffix('.py')}"


def is_compiling(frames: Sequence[Frame]) -> bool:
    """Return whether the compiler is on a stack."""
    return any(fr.normalise_file(frame.file).startswith(_COMPILER) for frame in frames)


def runs_loop(dump: Dump) -> bool:
    """Return whether a thread of a process runs an event loop."""
    return any(
        _RUNS_LOOP.fullmatch(fr.normalise_file(frame.file))
        for thread in dump.threads
        for frame in thread.frames
    )


def waits_in_selector(dump: Dump) -> bool:
    """Return whether the main thread of a process is in a selector of an event loop."""
    for thread in dump.threads:
        files = [fr.normalise_file(frame.file) for frame in thread.frames]
        if thread.tid == dump.pid:
            is_loop = any(_RUNS_LOOP.fullmatch(file) for file in files)
            return files[:1] == ["<stdlib>/selectors.py"] and is_loop
    return False


def blocks_loop(frames: Sequence[Frame]) -> bool:
    """Return whether an event loop runs code of a task in this thread. While that code waits, no
    other task of the loop goes on.
    """
    files = [fr.normalise_file(frame.file) for frame in own_frames(frames)]
    at = next((n for n, file in enumerate(files) if _RUNS_LOOP.fullmatch(file)), 0)
    return any(not _OF_ASYNCIO.fullmatch(file) for file in files[:at])


def own_frames(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the frames without those that a forked process has of its parent."""
    file, function = _START_OF_CHILD
    for number, frame in enumerate(frames):
        if fr.normalise_file(frame.file) == file and _last(frame.function) == function:
            return tuple(frames[:number])
    return tuple(frames)


def users_place(frames: Sequence[Frame]) -> str:
    """Return the innermost line of the user's own files; empty if there is none."""
    own = (f for f in own_frames(frames) if fr.normalise_file(f.file) == fr.USER)
    frame = next(own, None)
    return stack_place([frame]) if frame is not None else ""


def calling_places(frames: Sequence[Frame]) -> tuple[str, ...]:
    """Return the user's lines that led to the innermost one, the innermost first."""
    own = [f for f in own_frames(frames) if fr.normalise_file(f.file) == fr.USER]
    return tuple(dict.fromkeys(stack_place([frame]) for frame in own[1:]))


def called_place(frames: Sequence[Frame]) -> str:
    """Return the innermost line, and the user's line that led there; for code of a package, the
    user's line and the function that it calls.
    """
    place, users = stack_place(frames), users_place(frames)
    if users in ("", place):
        return place
    if call := call_of_package(frames):
        return f"{users}, in {call}"
    return f"{place}, called at {users}"


def place_of(frames: Sequence[Frame]) -> str:
    """Return the innermost line of the user's own files; without one, the innermost line of a
    package, and without that, the innermost line outside of Python's machinery.
    """
    inner = own_frames(frames)
    outside = (f for f in inner if not fr.normalise_file(f.file).startswith(("<", "torch/")))
    frame = next(outside, None)
    return users_place(frames) or stack_place([frame] if frame is not None else inner or frames)


def only_serves(frames: Sequence[Frame]) -> bool:
    """Return whether a thread waits for work to pass on, and runs no code of the program."""
    normal = [fr.normalise_file(f.file) for f in own_frames(frames)]
    is_own = any(file == fr.USER or not file.startswith(("<", "torch/")) for file in normal)
    return not is_own and any(_WORKERS.fullmatch(file) for file in normal)


def _of_stdlib(frames: Sequence[Frame]) -> WaitKind | None:
    """Return the kind of the outermost call of the standard library that the other code makes."""
    found = None
    for frame in frames:
        if not frame.file.startswith(("<stdlib>/", "<frozen>")):
            break
        if frame.file == "<frozen>" and "ModuleLock" in frame.function:
            return _IMPORT_LOCK
        module = frame.file.removeprefix("<stdlib>/").removesuffix(".py")
        for file, function, kind in _STDLIB:
            name = frame.function if "\\." in function.pattern else _last(frame.function)
            if file.fullmatch(module) and function.fullmatch(name):
                found = kind
                break
        if found is not None and module.startswith(("concurrent/futures/thread", "socketserver")):
            break
    return found


def _last(name: str) -> str:
    return name.rsplit(".", 1)[-1]
