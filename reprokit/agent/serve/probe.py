"""One probe, from inside a child of the fork server: run a program as ``python FILE`` would,
watched like any target.

The child writes what every watched process writes (journal, stacks, output) into a run directory of
its own, so that the host judges it with the same rules as a capture.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import tempfile
import traceback
import types
from typing import NoReturn, TextIO

from ...core.shared import without_compile
from ...core.shared.contract import events, run_names
from ...core.shared.contract.probe_messages import ProbeRequest
from .. import import_hook, install_hooks
from ..__main__ import run_factory
from ..experiments import overrides, stop_after_phase
from ..record import exceptions, graph_recorder, journal, process_start
from ..results import result_recorder

NOT_RECORDED = 0
"""Graphs of a probe are the candidate itself."""


def run_probe(asked: ProbeRequest, threads: int) -> NoReturn:
    """Run the program or the factory that was asked for in this freshly forked child; end with its
    exit status.
    """
    status = 70  # of a child that could not even begin
    try:
        _settle(asked, threads)
        status = _run(asked)
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(status)
    raise AssertionError  # not reached


def _settle(asked: ProbeRequest, threads: int) -> None:
    process_start.end_with_parent()
    folder = asked.folder
    streams = (
        os.open(os.devnull, os.O_RDONLY),
        _create(folder, run_names.STDOUT_FILE),
        _create(folder, run_names.STDERR_FILE),
    )
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdout, sys.stderr = _text_stream(1), _text_stream(2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, asked.file_bytes)
    _limit(resource.RLIMIT_AS, _address_space() + asked.memory_bytes)
    os.chdir(folder)
    journal.RUN_DIR = os.environ[run_names.RUN_DIR_VARIABLE] = folder
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, run_names.CACHE_FOLDER)
    os.environ["TRITON_CACHE_DIR"] = os.path.join(folder, run_names.CACHE_FOLDER, "triton")
    graph_recorder.MAX_GRAPHS = NOT_RECORDED
    os.environ.pop("OPENBLAS_NUM_THREADS", None)
    if asked.openblas_threads is not None:
        os.environ["OPENBLAS_NUM_THREADS"] = asked.openblas_threads
    process_start.introduce_process()
    # for processes that the program starts, and for an Inductor that is not imported yet
    import_hook.wait_for_torch()
    if "torch" not in sys.modules:
        tempfile.tempdir = os.environ["TMPDIR"] = (
            folder  # Triton leaves its files there when ptxas fails
        )
        return
    import torch

    # The server has one thread, or forking it would not be safe; the program has as many as in a
    # process of its own.
    torch.set_num_threads(threads)
    overrides.install_overrides(asked.overrides)
    install_hooks.watch_dynamo()
    if "torch._inductor.compile_fx" in sys.modules:
        install_hooks.watch_inductor()
    if asked.is_eager:
        import torch._dynamo.config

        torch._dynamo.config.disable = True
        if not asked.role:  # the recorder of a role leaves the compiler out itself
            # our own text, the same that fresh processes get
            exec(without_compile.PATCH, {"torch": torch})  # noqa: S102
    elif asked.stop:
        stop_after_phase.stop_after(asked.stop, asked.is_backward, lambda: _leave(0))
    result_recorder.install_recorder(asked.role, asked.results)
    if asked.target:
        os.chdir(asked.target.cwd)


def _run(asked: ProbeRequest) -> int:
    import linecache

    if asked.target:
        return run_factory(asked.target)

    file = asked.file
    with open(file, encoding="utf-8") as opened:
        text = opened.read()
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=file, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    sys.argv = [file]
    sys.path[0] = os.path.dirname(file)
    linecache.checkcache()
    try:
        # running the program is what a probe is for
        exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:
        journal.write(
            events.ExceptionRaised(where="uncaught", chain=exceptions.describe_exception(error))
        )
        with contextlib.suppress(Exception):
            traceback.print_exc()
        return 1
    return 0


def _leave(status: int) -> None:
    """End at once: what the program left for its exit is not what a probe asks about, but for what
    it gave.
    """
    result_recorder.finish_recording()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


def _text_stream(number: int) -> TextIO:
    """A standard stream of this process, which stays open."""
    return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _create(folder: str, name: str) -> int:
    return os.open(
        os.path.join(folder, run_names.LOGS_FOLDER, name),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        0o600,
    )


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(what, (most, hard))


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
