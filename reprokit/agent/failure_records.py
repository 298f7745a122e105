"""Keep what torch traces of the last compiles in memory, and write it when one fails.

``reprokit.watch(on_failure="record")`` and ``reprokit.record()`` add a handler to the logger of
``TORCH_TRACE`` (``torch/_logging/_internal.py``). The file that they write is such a trace, so
``reprokit capture FILE`` reads it. Nothing here may raise into the program.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

LOGGER = "torch.__trace"
MAX_KEPT_BYTES, MAX_COMPILES = 32 << 20, 64
"""Limits of what is kept in memory."""
MAX_FILE_BYTES, MAX_FILES = 50 << 20, 16
"""Limits of one file, and of the files of one process."""
_KEPT = frozenset(
    "dynamo_start describe_tensor describe_source dynamo_output_graph dynamo_cpp_guards_str"
    " aot_joint_graph aot_inference_graph inductor_output_code compilation_metrics"
    " bwd_compilation_metrics".split()
)
_KEPT_ARTIFACTS = frozenset(
    "fx_graph_runnable dynamo_error dynamo_graph_break_reason recompile_reasons".split()
)
_GOES_ON = frozenset({"Unsupported", "SkipFrame", "SkipCodeRecursiveException"})
"""Errors of Dynamo after which the program may go on without compiling a function."""
_handler: FailureHandler | None = None


class FailureHandler(logging.Handler):
    """Keeps the records of the last compiles, and writes those of one that failed."""

    def __init__(self, folder: str) -> None:
        """Create the handler; files are written below ``folder``."""
        super().__init__()
        from torch._logging._internal import TorchLogsFormatter

        self.setFormatter(TorchLogsFormatter(trace=True))
        self._folder = folder
        self._kept: collections.OrderedDict[tuple[object, object], list[str]]
        self._kept = collections.OrderedDict()
        self._bytes = 0
        self._written: set[tuple[str, str, str]] = set()
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
        key = metadata.get("frame_id"), metadata.get("frame_compile_id")
        line = self.format(record) + "\n"
        if key not in self._kept:
            self._kept[key] = []
        self._kept[key].append(line)
        self._bytes += len(line)
        while self._kept and (self._bytes > MAX_KEPT_BYTES or len(self._kept) > MAX_COMPILES):
            _, lines = self._kept.popitem(last=False)
            self._bytes -= sum(map(len, lines))
        metrics = metadata.get("compilation_metrics") or {}
        error = str(metrics.get("fail_type") or "").rpartition(".")[2]
        if error and error not in _GOES_ON and key in self._kept:
            self._kept.move_to_end(key)
            self._write(error, metrics)

    def _write(self, error: str, metrics: dict[str, object]) -> None:
        if os.getpid() != self._pid:  # a child has its own files
            self._pid, self._written = os.getpid(), set()
        reason = str(metrics.get("fail_reason") or "").split("\n", 1)[0]
        place = f"{metrics.get('co_filename')}:{metrics.get('co_firstlineno')}"
        identity = error, reason, place
        if identity in self._written or len(self._written) >= MAX_FILES:
            return
        self._written.add(identity)
        path = new_file(self._folder)
        left, texts = MAX_FILE_BYTES, list[str]()
        for lines in reversed(self._kept.values()):
            texts.append("".join(lines))
            left -= len(texts[-1])
            if left < 0:
                texts.pop()
                break
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(version_line())
            file.writelines(reversed(texts))  # the compile that failed is the last one
        announce(path, f"a compile failed ({error}); what torch recorded of it")


def is_kept(metadata: dict[str, object]) -> bool:
    """Return whether ``reprokit capture`` reads a record."""
    artifact = metadata.get("artifact")
    if isinstance(artifact, dict):
        return artifact.get("name") in _KEPT_ARTIFACTS
    return not _KEPT.isdisjoint(metadata)


def version_line() -> str:
    """Return the record with the version of torch, as the first handler of torch writes it."""
    import torch

    prefix = f"V0101 00:00:00.000000 {os.getpid()} reprokit:1]"
    head = f'{prefix} {{"artifact": {{"name": "torch_version", "encoding": "json"}}}}\n'
    return f'{head}\t{{"pytorch_version": "{torch.__version__}"}}\n'


def new_file(folder: str) -> str:
    """Return the path of a new file below ``folder``, or below the folder for temporary files if
    nothing can be written there.
    """
    import tempfile

    name = f"torch_trace_{os.getpid()}_"
    try:
        os.makedirs(folder, exist_ok=True)
        handle, path = tempfile.mkstemp(".log", name, os.path.abspath(folder))
    except OSError:
        handle, path = tempfile.mkstemp(".log", f"reprokit_{name}")
    os.close(handle)
    return path


def announce(path: str, what: str) -> None:
    """Say on stderr where a file is."""
    import shlex

    with contextlib.suppress(Exception):
        command = f"reprokit capture {shlex.quote(path)} --yes"
        sys.stderr.write(f"reprokit: {what} is in {path}; {command}\n")


def keep_for_failures(folder: str) -> None:
    """Add the handler, once for a process."""
    global _handler
    if _handler is None:
        _handler = FailureHandler(folder)
        logging.getLogger(LOGGER).addHandler(_handler)


@contextlib.contextmanager
def record_compiles(folder: str) -> Iterator[str]:
    """Write what torch traces of each compile inside the block; yield the path of the file."""
    from torch._logging._internal import TorchLogsFormatter

    path = new_file(folder)
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(version_line())
        handler = _FileHandler(file)
        handler.setFormatter(TorchLogsFormatter(trace=True))
        logger = logging.getLogger(LOGGER)
        logger.addHandler(handler)
        try:
            yield path
        finally:
            logger.removeHandler(handler)
            announce(path, "what torch recorded of the compiles")


class _FileHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes the records that ``reprokit capture`` reads."""

    def emit(self, record: logging.LogRecord) -> None:
        if is_kept(record.__dict__.get("metadata") or {}):
            with contextlib.suppress(Exception):
                self.stream.write(self.format(record) + "\n")
                self.flush()
