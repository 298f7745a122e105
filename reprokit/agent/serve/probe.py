"""Run one probe in a child of the probe server: a program as ``python FILE`` does, or a factory.

The child writes a journal, stacks and output to its own run directory, as each watched process
does, so that the host judges it with the same rules as a capture.
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
from typing import NoReturn, TextIO, cast

from ...core.shared import without_compile
from ...core.shared.contract import events, run_names
from ...core.shared.contract.probe_messages import ProbeRequest
from .. import import_hook, install_hooks, measure_program
from ..__main__ import run_factory
from ..experiments import overrides
from ..record import compile_settings, exceptions, graph_recorder, journal, process_start
from ..results import result_recorder
from ..torch_hooks import stop_after_phase
from . import gpu_driver, isolation

MAX_PROBE_GRAPHS = 0
"""The graphs of a probe are not recorded: the candidate has them."""
NOT_STARTED_STATUS = 70


def run_probe(request: ProbeRequest, threads: int) -> NoReturn:
    """Run the program or the factory of ``request`` in this child, and exit with its status."""
    status = NOT_STARTED_STATUS
    try:
        _prepare_child(request, threads)
        status = _run_program(request)
    except BaseException:
        traceback.print_exc()
    finally:
        _exit_at_once(status)
    raise AssertionError  # not reached


def _prepare_child(request: ProbeRequest, threads: int) -> None:
    process_start.end_with_parent()
    folder = request.folder
    streams = (
        os.open(os.devnull, os.O_RDONLY),
        _create(folder, run_names.STDOUT_FILE),
        _create(folder, run_names.STDERR_FILE),
    )
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdout, sys.stderr = _text_stream(1), _text_stream(2)
    if request.isolation is not None:  # no descriptor leads outside any more
        isolation.enter_isolation(request.isolation)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_FSIZE, request.file_bytes)
    if "torch" not in sys.modules or not gpu_driver.is_needed():
        # the driver of a GPU reserves more addresses than the machine has memory
        _set_limit(resource.RLIMIT_AS, _address_space_bytes() + request.memory_bytes)
    os.chdir(request.isolation.cwd if request.isolation is not None else folder)
    journal.RUN_DIR = os.environ[run_names.RUN_DIR_VARIABLE] = folder
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = request.cache
    os.environ["TRITON_CACHE_DIR"] = os.path.join(request.cache, "triton")
    graph_recorder.MAX_GRAPHS = MAX_PROBE_GRAPHS
    compile_settings.is_probe = True
    os.environ.pop("OPENBLAS_NUM_THREADS", None)
    if request.openblas_threads is not None:
        os.environ["OPENBLAS_NUM_THREADS"] = request.openblas_threads
    process_start.journal_process()
    # for processes that the program starts, and for Inductor if it is not imported yet
    import_hook.wait_for_torch()
    if "torch" not in sys.modules:
        # Triton leaves files in the temporary directory when ptxas fails
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        return
    import torch

    # The server has one thread, so that a fork is safe. The program has as many as in a fresh
    # process.
    torch.set_num_threads(threads)
    overrides.install_overrides(cast(overrides.Overrides, request.overrides))
    install_hooks.watch_dynamo()
    if "torch._inductor.compile_fx" in sys.modules:
        install_hooks.watch_inductor()
    if request.is_eager:
        import torch._dynamo.config

        torch._dynamo.config.disable = True
        if not request.role:  # the recorder of a role replaces torch.compile itself
            without_compile.replace_entries(torch, lambda model, options: model)
    elif request.stop:
        stop_after_phase.stop_after(request.stop, request.is_backward, lambda: _exit_at_once(0))
        if request.checks_syntax and "torch._inductor.compile_fx" in sys.modules:
            stop_after_phase.only_check_syntax()
    result_recorder.install_recorder(request.role, request.results)
    if not request.is_eager:
        measure_program.install_measurement(request.measures, request.is_simulated)
    if request.target:
        os.chdir(request.target.cwd)


def _run_program(request: ProbeRequest) -> int:
    import linecache

    if request.target:
        return run_factory(request.target)

    file = request.file
    with open(file, encoding="utf-8") as opened:
        text = opened.read()
    module = types.ModuleType("__main__")
    # the program may look for its data beside its own file
    path = request.isolation.path if request.isolation is not None else ""
    module.__dict__.update(__file__=path or file, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    sys.argv = [path or file]
    sys.path[0] = os.path.dirname(path or file)
    if request.isolation is not None and not path:
        sys.path[0] = request.isolation.cwd  # as for a module
    linecache.checkcache()
    try:
        # the program is the candidate
        code = compile(text, file, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:
        sys.last_value = error  # as the interpreter does
        journal.write_event(
            events.ExceptionRaised(where="uncaught", chain=exceptions.describe_exception(error))
        )
        with contextlib.suppress(Exception):
            traceback.print_exc()
        return 1
    return 0


def _exit_at_once(status: int) -> None:
    """End this process after its results are written; the program's exit handlers do not run."""
    result_recorder.finish_recording()
    measure_program.finish_measurement()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(status)


def _text_stream(number: int) -> TextIO:
    """Return a standard stream of this process whose descriptor stays open."""
    return open(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _create(folder: str, name: str) -> int:
    return os.open(
        os.path.join(folder, run_names.LOGS_FOLDER, name),
        os.O_WRONLY | os.O_CREAT | os.O_APPEND,
        0o600,
    )


def _set_limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(kind, (limit, hard))


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
