"""Write a set of TORCH_LOGS to a file of the agent, without a change to the program's logging.

The agent replaces three methods of each logger that it selects, and none of the logger's settings.
``isEnabledFor`` also returns True for a record that only the agent wants. ``makeRecord`` writes the
record to the file; it creates a record that only the agent wants itself, so that the program's
record factory does not see it. ``filter`` rejects such a record, so that no handler sees it. No
frame of the agent is on the stack while a handler or a record factory of the program runs.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events, run_names
from ..record import journal
from . import torch_trace
from .symbols import wrap_symbol

DEFAULT = (
    "dynamo",
    "inductor",
    "dynamic",
    "recompiles",
    "graph_breaks",
    "cudagraphs",
    "perf_hints",
)
"""Logs that reports need and whose cost is too small to measure. ``REPROKIT_LOGS`` adds others."""
_LEVELS = {"": logging.INFO, "+": logging.DEBUG, "-": logging.ERROR}
_TRACE = "torch.__trace"
"""The logger of TORCH_TRACE, which is always on and has its own file."""
_NEVER = (math.inf, False)


@dataclass
class _Selection:
    """The logs that are written to the file."""

    registry: Any
    artifacts: set[str] = field(default_factory=set)
    levels: dict[str, int] = field(default_factory=dict)
    """By the prefix of the loggers' names."""
    requested: set[str] = field(default_factory=set)
    """The keys of ``levels`` that the user requested: for these torch also does work that it does
    only for a log.
    """

    def level_of(self, name: str) -> tuple[float, bool]:
        """Return the lowest level of a logger that is written, and whether it was requested."""
        last = name.rpartition(".")[2]
        artifact = last[2:] if last.startswith("__") else ""
        if artifact in self.artifacts:
            return logging.DEBUG, True
        if name == _TRACE or self.registry.is_off_by_default(artifact):
            return _NEVER
        prefixes = [q for q in self.levels if name == q or name.startswith(q + ".")]
        if not prefixes:
            return logging.WARNING, False
        longest = max(prefixes, key=len)
        return self.levels[longest], longest in self.requested


_selection: _Selection | None = None
_file: logging.Handler | None = None
_logger_count = 0


def send_to_file() -> None:
    """Write the default logs and those of ``REPROKIT_LOGS`` to this process's file.

    The names in ``REPROKIT_LOGS`` are those of TORCH_LOGS.
    """
    global _selection, _file
    import torch._logging._internal as internal

    requested = tuple(
        n.strip() for n in os.environ.get(run_names.LOGS_VARIABLE, "").split(",") if n.strip()
    )
    selection = _select_logs(internal.log_registry, requested)
    _file = _WarningJournal(
        os.path.join(journal.RUN_DIR, run_names.LOGS_FOLDER, f"torch-{os.getpid()}.log")
    )
    _file.setFormatter(internal.TorchLogsFormatter())
    _selection = selection
    listen_to_logs()

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def is_artifact_enabled(self: Any, name: str) -> bool:
            # torch calls this for some artifacts before it calls isEnabledFor of their logger
            caller = sys._getframe(1).f_globals.get("__name__", "")
            is_selected = (
                name in selection.artifacts
                and caller.startswith("torch.")
                and caller != internal.__name__
            )
            return is_selected or bool(real(self, name))

        return is_artifact_enabled

    wrap_symbol("torch._logging._internal:LogState.is_artifact_enabled", make_hook)


def _select_logs(registry: Any, requested: tuple[str, ...]) -> _Selection:
    selection, unknown = _Selection(registry), []
    for item in (*DEFAULT, *requested):
        sign, name = (item[0], item[1:]) if item[:1] in ("+", "-") else ("", item)
        if registry.is_artifact(name):
            selection.artifacts.add(name)
            continue
        if registry.is_log(name):
            names = registry.log_alias_to_log_qnames[name]
            names = [names] if isinstance(names, str) else names
        elif name.startswith("torch."):  # TORCH_LOGS accepts the name of a module
            names = [name]
        else:
            unknown.append(name)
            continue
        selection.levels.update(dict.fromkeys(names, _LEVELS[sign]))
        if item in requested:
            selection.requested.update(names)
    if unknown:
        journal.write_event(
            events.AgentProblem(
                hook="logs", problem=f"this torch has no log named {', '.join(unknown)}"
            )
        )
    return selection


def listen_to_logs() -> None:
    """Write the selected records of loggers that were created since the last call.

    It returns at once if there are no new loggers.
    """
    global _logger_count
    loggers = logging.Logger.manager.loggerDict
    if _selection is None or len(loggers) == _logger_count:
        return
    _logger_count = len(loggers)
    for name, logger in list(loggers.items()):
        if f"{name}.".startswith("torch.") and isinstance(logger, logging.Logger):
            level, is_requested = _selection.level_of(name)
            if level < math.inf:
                _replace_methods(logger, level, is_requested)


def _replace_methods(logger: logging.Logger, level: float, is_requested: bool) -> None:
    # replaced before, by the agent or by the program
    if vars(logger).keys() & {"isEnabledFor", "makeRecord", "filter"}:
        return

    def isEnabledFor(number: int) -> bool:
        if type(logger).isEnabledFor(logger, number):
            return True
        return number >= level and _accepts_caller(sys._getframe(1), is_requested)

    def makeRecord(
        name: str,
        number: int,
        fn: str,
        line: int,
        msg: Any,
        args: Any,
        exc_info: Any,
        func: str | None = None,
        extra: Any = None,
        sinfo: str | None = None,
    ) -> logging.LogRecord:
        if type(logger).isEnabledFor(logger, number):
            record = type(logger).makeRecord(
                logger, name, number, fn, line, msg, args, exc_info, func, extra, sinfo
            )
            if number >= level:
                # a formatter caches text in the record, which the program's formatter would use
                _write_record(copy.copy(record))
            return record
        record = torch_trace.TraceRecord(name, number, fn, line, msg, args, exc_info, func, sinfo)
        _write_record(record)
        return record

    vars(logger).update(
        isEnabledFor=isEnabledFor,
        makeRecord=makeRecord,
        filter=lambda record: torch_trace.filter_record(logger, record),
    )


def _accepts_caller(caller: FrameType, is_requested: bool) -> bool:
    """Whether ``isEnabledFor`` may return True to a caller.

    ``logging`` calls it before each record. Torch calls it before work that only a log needs, which
    torch does for a requested log only.
    """
    name = caller.f_globals.get("__name__", "")
    return bool(name == "logging" or (is_requested and name.startswith("torch.")))


def _write_record(record: logging.LogRecord) -> None:
    if _file is not None:
        _file.handle(record)


class _WarningJournal(logging.FileHandler):
    """Write records to a file of the process, and warnings to the journal too.

    The file is opened at the first record.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, mode="a", delay=True)
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._pid:  # a forked child writes to its own file
            self._pid = os.getpid()
            self.stream = None
            self.baseFilename = os.path.join(
                os.path.dirname(self.baseFilename), f"torch-{self._pid}.log"
            )
        super().emit(record)
        if record.levelno >= logging.WARNING:
            journal.write_event(
                events.WarningShown(
                    category=record.name,
                    message=cuts.cut_head(record.getMessage(), 4000),
                    file=record.pathname,
                    line=record.lineno,
                )
            )

    def handleError(self, record: logging.LogRecord) -> None:
        """Ignore an error such as a full disk: the target must not see it."""
