"""Keep what torch traces of the last compiles in memory, and write it at a failure.

``reprokit.watch(on_failure="record")`` and ``reprokit.record()`` add a handler to the logger of
``TORCH_TRACE`` (``torch/_logging/_internal.py``). The file that they write is such a trace, with
two records of our own: the call that was compiled, as a program, and the error of a compiled call.
``reprokit capture FILE`` reads it. Nothing here may raise into the program.
"""

from __future__ import annotations

import collections
import contextlib
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
import types
import warnings

from ...core.shared.contract.journal_format import DUMP_SIGNAL
from ..torch_hooks import trace_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from .call_programs import CallToSave, ProgramOfCall

LOGGER = "torch.__trace"
MAX_KEPT_BYTES, MAX_COMPILES = 32 << 20, 64
"""Limits of what is kept in memory."""
MAX_FILE_BYTES, MAX_FILES = 50 << 20, 16
"""Limits of one file, and of the files of one process."""
MAX_TRACEBACK_CHARS = 20_000
CALL, ERROR = "reprokit_call", "reprokit_error"
"""The records of our own."""
_KEPT = frozenset(
    "dynamo_start describe_tensor describe_source dynamo_output_graph dynamo_cpp_guards_str"
    " aot_joint_graph aot_inference_graph inductor_output_code compilation_metrics"
    " bwd_compilation_metrics".split()
)
_KEPT_ARTIFACTS = frozenset(
    "fx_graph_runnable dynamo_error dynamo_graph_break_reason recompile_reasons".split()
)
_GOES_ON = frozenset({"Unsupported", "SkipFrame", "SkipCodeRecursiveException"})
"""Errors of Dynamo after which the program goes on without compiling a function, unless it must be
one graph (``fullgraph=True``).
"""
_LIMIT = "recompile limit exceeded"
_RESUME = "torch_dynamo_resume_in_"
_TORCH = f"{os.sep}torch{os.sep}"
_COMPILE = os.path.join("torch", "_dynamo", "convert_frame.py")
_ENTER = os.path.join("torch", "_dynamo", "eval_frame.py")
_COMPILED = ("<eval_with_key>", os.path.join("torch", "_functorch", "_aot_autograd", ""),
             os.path.join("torch", "_inductor", "output_code.py"))  # fmt: skip
"""Parts of the file names of functions that run compiled code."""
_handler: FailureHandler | None = None


class FailureHandler(logging.Handler):
    """Keeps the records of the last compiles, and writes them when one of them fails."""

    def __init__(self, folder: str, has_values: bool) -> None:
        """Create the handler; files are written below ``folder``, with values of small tensors if
        ``has_values`` is set.
        """
        super().__init__()
        from torch._logging._internal import TorchLogsFormatter

        self.setFormatter(TorchLogsFormatter(trace=True))
        self._folder, self._has_values = folder, has_values
        self._kept: collections.OrderedDict[tuple[object, object], list[str]]
        self._kept = collections.OrderedDict()
        self._bytes = 0
        self._written: set[tuple[str, ...]] = set()
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        """Take one record of torch."""
        try:
            self._take(record)
        except Exception:  # the compile of the user must not see it
            return

    def _take(self, record: logging.LogRecord) -> None:
        metadata = record.__dict__.get("metadata") or {}
        if not is_kept(metadata):
            return
        key = _key_of(metadata)
        line = self.format(record) + "\n"
        if key not in self._kept:
            self._kept[key] = []
        self._kept[key].append(line)
        self._bytes += len(line)
        while self._kept and (self._bytes > MAX_KEPT_BYTES or len(self._kept) > MAX_COMPILES):
            _, lines = self._kept.popitem(last=False)
            self._bytes -= sum(map(len, lines))
        error, frame = _raised(metadata)
        if error and key in self._kept:
            metrics = metadata["compilation_metrics"]
            reason = str(metrics.get("fail_reason") or "").split("\n", 1)[0]
            code = frame.f_locals.get("code") if frame is not None else None
            place = f"{getattr(code, 'co_filename', '')}:{getattr(code, 'co_firstlineno', '')}"
            self._kept.move_to_end(key)  # the compile that failed is the last one
            if self._is_new((error, reason, place)):
                call = _compiled_call(frame, key, self._has_values)
                self._kept[key].append(call)
                self._bytes += len(call)
            self.write((error, reason, place), f"a compile failed ({error})")

    def _is_new(self, identity: tuple[str, ...]) -> bool:
        if os.getpid() != self._pid:  # a child has its own files
            self._pid, self._written = os.getpid(), set()
        return identity not in self._written and len(self._written) < MAX_FILES

    def write(self, identity: tuple[str, ...], what: str, more: str = "") -> None:
        """Write what is kept and ``more`` to a new file, once for each ``identity``."""
        if not self._is_new(identity):
            return
        path = new_file(self._folder)
        left, texts = MAX_FILE_BYTES, list[str]()
        for lines in reversed(list(self._kept.values())):
            texts.append("".join(lines))
            left -= len(texts[-1])
            if left < 0:
                texts.pop()
                break
        try:
            with open(path, "w", encoding="utf-8", errors="replace") as file:
                file.write(trace_file.version_line())
                file.writelines(reversed(texts))
                file.write(more)
        except OSError:  # a full disk: a later failure may have room
            os.unlink(path)
            raise
        self._written.add(identity)
        announce(path, f"{what}; what torch recorded of its compiles")

    def take_error(self, problem: BaseException) -> None:
        """Write the record of an error that a compiled call raised, if it is one."""
        try:
            if raised_by_compiled_code(problem):
                name = type(problem).__name__
                identity = name, str(problem)[:200], _last_place(problem)
                more = record_of_error(problem, self._has_values)
                self.write(identity, f"a compiled call raised {name}", more)
        except Exception:  # the program must not see it
            return


def frame_of_dynamo() -> types.FrameType | None:
    """Return the frame of Dynamo that compiles a function in this thread, if there is one."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_compile" and frame.f_code.co_filename.endswith(_COMPILE):
            return frame
        frame = frame.f_back
    return None


def _key_of(metadata: Mapping[str, Any]) -> tuple[object, object]:
    """Return the compile of a record."""
    return metadata.get("frame_id"), metadata.get("frame_compile_id")


def _raised(metadata: Mapping[str, Any]) -> tuple[str, types.FrameType | None]:
    """Return the error with which a compile ended, and the frame of Dynamo; empty if the program
    does not see it.
    """
    metrics = metadata.get("compilation_metrics") or {}
    error = str(metrics.get("fail_type") or "").rpartition(".")[2]
    if not error:
        return "", None
    frame = frame_of_dynamo()
    is_one_graph = frame is not None and bool(frame.f_locals.get("one_graph"))
    is_limit = _LIMIT in str(metrics.get("fail_reason"))
    return (error if error not in _GOES_ON or is_one_graph or is_limit else ""), frame


def _compiled_call(
    frame: types.FrameType | None, key: tuple[object, object], has_values: bool
) -> str:
    """Return the record with the program of the call that a frame of Dynamo compiles, or with a
    comment why there is none.
    """
    if frame is None:
        return ""
    from . import call_programs

    found = frame.f_locals

    def program() -> ProgramOfCall:
        outer = _outer_function(frame) if found["code"].co_name.startswith(_RESUME) else None
        call = (
            _running_call(outer)
            if outer is not None
            else call_programs.call_of_frame(
                found["code"], found["locals"], found["globals"], found.get("closure") or ()
            )
        )
        words = ["fullgraph=True"] * bool(found.get("one_graph"))
        return call_programs.program_of_call(call, words, found["compiler_fn"], has_values)

    return trace_file.record_line(CALL, text_or_reason(program), key)


def text_or_reason(make: Callable[[], ProgramOfCall]) -> str:
    """Return the text of a program, or a comment why there is none."""
    try:
        return make().text
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # a user's object may raise anything, also SystemExit
        return f"# no program of the call: {problem or type(problem).__name__}"


def _outer_function(frame: types.FrameType) -> types.FrameType | None:
    """Return the frame of the user's function behind a graph break of which Dynamo compiles."""
    outer = frame.f_back
    while outer is not None:
        code = outer.f_code
        if _TORCH not in code.co_filename and not code.co_name.startswith(_RESUME):
            return outer
        outer = outer.f_back
    return None


def _running_call(frame: types.FrameType) -> CallToSave:
    """Return the call of a function that runs, from the values that its arguments have now."""
    from . import call_programs

    names = frame.f_locals
    cells = [types.CellType(names[name]) for name in frame.f_code.co_freevars]
    return call_programs.call_of_frame(frame.f_code, names, frame.f_globals, cells)


def raised_by_compiled_code(problem: BaseException) -> bool:
    """Return whether an error came out of compiled code, and not out of the compiler."""
    exc = sys.modules.get("torch._dynamo.exc")
    if exc is None or isinstance(problem, exc.TorchDynamoException):
        return False  # a compile that failed has its own record
    files = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(problem.__traceback__)]
    return any(part in file for file in files for part in _COMPILED)


def record_of_error(problem: BaseException, has_values: bool) -> str:
    """Return the records of an error and of the compiled call that raised it."""
    lines = traceback.format_exception(type(problem), problem, problem.__traceback__)
    facts = {
        "type": type(problem).__name__,
        "message": str(problem)[:4000],
        "traceback": "".join(lines)[-MAX_TRACEBACK_CHARS:],
    }
    return trace_file.record_line(ERROR, json.dumps(facts)) + trace_file.record_line(
        CALL, _called(problem, has_values)
    )


def _called(problem: BaseException, has_values: bool) -> str:
    """Return the program of the outermost compiled call in a traceback; else a comment why not."""
    from . import call_programs

    frames = [frame for frame, _ in traceback.walk_tb(problem.__traceback__)]
    files = [frame.f_code.co_filename for frame in frames]
    entered = next((n for n, file in enumerate(files) if file.endswith(_ENTER)), None)
    rest = frames[entered:] if entered is not None else []
    frame = next((one for one in rest if _TORCH not in one.f_code.co_filename), None)
    if frame is None:
        return "# no program of the call: it is not in the traceback\n"
    called = frame
    return text_or_reason(
        lambda: call_programs.program_of_call(_running_call(called), (), None, has_values)
    )


def _last_place(problem: BaseException) -> str:
    frames = traceback.extract_tb(problem.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def is_kept(metadata: Mapping[str, object]) -> bool:
    """Return whether ``reprokit capture`` reads a record."""
    artifact = metadata.get("artifact")
    if isinstance(artifact, dict):
        return artifact.get("name") in _KEPT_ARTIFACTS
    return not _KEPT.isdisjoint(metadata)


def new_file(folder: str, start: str = "torch_trace_", ending: str = ".log") -> str:
    """Return the path of a new file below ``folder``, or below the folder for temporary files if
    nothing can be written there.
    """
    import tempfile

    name = f"{start}{os.getpid()}_"
    try:
        os.makedirs(folder, exist_ok=True)
        handle, path = tempfile.mkstemp(ending, name, os.path.abspath(folder))
    except OSError:
        handle, path = tempfile.mkstemp(ending, f"reprokit_{name}")
    os.close(handle)
    return path


def announce(path: str, what: str, write: Callable[[str], object] | None = None) -> None:
    """Say on stderr where a file is."""
    import shlex

    with contextlib.suppress(Exception):
        command = f"reprokit capture {shlex.quote(path)} --yes"
        (write or sys.stderr.write)(f"reprokit: {what} is in {path}; {command}\n")


def keep_for_failures(folder: str, has_values: bool) -> None:
    """Add the handler, once for a process."""
    global _handler
    if _handler is None:
        _handler = FailureHandler(folder, has_values)
        logging.getLogger(LOGGER).addHandler(_handler)
        _watch_errors(_handler)


def _watch_errors(handler: FailureHandler) -> None:
    """Write an error of a compiled call that nothing catches, and what is kept on a signal."""
    former, former_of_threads = sys.excepthook, threading.excepthook

    def take(kind: Any, problem: BaseException, trace: Any) -> None:
        handler.take_error(problem)
        former(kind, problem, trace)

    def take_of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            handler.take_error(args.exc_value)
        former_of_threads(args)

    def dump(number: int, frame: object) -> None:
        with contextlib.suppress(Exception):
            handler.write(("signal", str(time.monotonic())), f"it got the signal {number}")

    sys.excepthook, threading.excepthook = take, take_of_thread
    set_signal: Callable[..., object] = signal.signal
    with contextlib.suppress(ValueError):  # only the main thread may set it
        if signal.getsignal(DUMP_SIGNAL) == signal.SIG_DFL:
            set_signal(DUMP_SIGNAL, dump)


@contextlib.contextmanager
def record_compiles(folder: str, has_values: bool) -> Iterator[str]:
    """Write what torch traces of each compile inside the block, and an error of a compiled call;
    yield the path of the file.
    """
    from torch._logging._internal import TorchLogsFormatter

    path = new_file(folder)
    file = open(path, "w", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed below
    handler = _FileHandler(file, has_values)
    handler.setFormatter(TorchLogsFormatter(trace=True))
    handler.write(trace_file.version_line)
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    try:
        yield path
    except BaseException as problem:
        error = problem
        handler.write(
            lambda: record_of_error(error, has_values) if raised_by_compiled_code(error) else ""
        )
        raise
    finally:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError):  # a full disk is no error of the program
            file.close()
        announce(path, "what torch recorded of the compiles")


class _FileHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes the records that ``reprokit capture`` reads."""

    def __init__(self, stream: Any, has_values: bool) -> None:
        super().__init__(stream)
        self._has_values = has_values

    def emit(self, record: logging.LogRecord) -> None:
        self.write(lambda: self._text_of(record))

    def write(self, make: Callable[[], str]) -> None:
        """Write what a function returns; nothing is raised."""
        with contextlib.suppress(Exception):
            if text := make():
                self.stream.write(text)
                self.flush()

    def _text_of(self, record: logging.LogRecord) -> str:
        metadata = record.__dict__.get("metadata") or {}
        if not is_kept(metadata):
            return ""
        error, frame = _raised(metadata)
        call = _compiled_call(frame, _key_of(metadata), self._has_values) if error else ""
        return f"{self.format(record)}\n{call}"


def save_call(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], folder: str, has_values: bool
) -> str:
    """Write the program of a call below ``folder``, and return its path.

    Raises ValueError if something of it cannot be written.
    """
    from ..record.definitions.source_trees import NoText
    from . import call_programs

    while (inner := _inside(function)) is not None:
        function = inner
    try:
        call = call_programs.CallToSave(function, args, kwargs)
        program = call_programs.program_of_call(call, (), None, has_values)
    except NoText as problem:
        raise ValueError(f"the call cannot be saved: {problem}") from problem
    path = new_file(folder, "call_", ".py")
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(program.text)
    except OSError:
        os.unlink(path)
        raise
    if program.left_out:
        more = f", and {len(program.left_out) - 1} more" * (len(program.left_out) > 1)
        warnings.warn(f"{path} is {program.left_out[0]}{more}", stacklevel=3)
    return path


def _inside(function: Any) -> Any:
    """Return the function or module that ``torch.compile`` was given; None for others."""
    found = vars(function) if hasattr(function, "__dict__") else {}
    modules = found.get("_modules") or {}
    return modules.get("_orig_mod", found.get("_torchdynamo_orig_callable"))
