"""Send a chosen set of TORCH_LOGS to a file of ours; the program's loggers, levels, handlers and
streams stay as they are.

Three methods are replaced on each logger that matters, and no setting of it. ``isEnabledFor`` also
says yes to torch where only we want the record. ``makeRecord`` writes the record to the file; it
makes the ones that only we want itself, so that no record factory sees them. ``filter`` drops
those, so that no handler sees them. No frame of ours is on the stack while a handler or a record
factory of the program looks for the caller.
"""

from __future__ import annotations

import copy
import logging
import math
import os
import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events, run_names
from ..record import journal
from . import torch_trace
from .hooking import wrap_function

DEFAULT = (
    "dynamo",
    "inductor",
    "dynamic",
    "recompiles",
    "graph_breaks",
    "cudagraphs",
    "perf_hints",
)
"""What reports need and what costs nothing measurable; the host's ``REPROKIT_LOGS`` adds to it."""
_LEVELS = {"": logging.INFO, "+": logging.DEBUG, "-": logging.ERROR}
_TRACE = "torch.__trace"
"""The logger of TORCH_TRACE, which is always on and has a file of its own."""
_NEVER = (math.inf, False)


@dataclass
class _Chosen:
    """What goes to the file."""

    registry: Any
    artifacts: set[str] = field(default_factory=set)
    levels: dict[str, int] = field(default_factory=dict)
    """By the beginnings of loggers' names."""
    named: set[str] = field(default_factory=set)
    """Those of ``levels`` that were asked for: torch then also does the work that it does only for
    a log.
    """

    def level(self, name: str) -> tuple[float, bool]:
        """From which level on a logger's records are written, and whether torch may prepare
        something for them.
        """
        last = name.rpartition(".")[2]
        artifact = last[2:] if last.startswith("__") else ""
        if artifact in self.artifacts:
            return logging.DEBUG, True
        if name == _TRACE or self.registry.is_off_by_default(artifact):
            return _NEVER
        found = [q for q in self.levels if name == q or name.startswith(q + ".")]
        if not found:
            return logging.WARNING, False
        closest = max(found, key=len)
        return self.levels[closest], closest in self.named


_chosen: _Chosen | None = None
_file: logging.Handler | None = None
_seen = 0


def send_to_file() -> None:
    """Write the default logs, and those of ``REPROKIT_LOGS`` (names as in TORCH_LOGS), of this
    process to its file.
    """
    global _chosen, _file
    import torch._logging._internal as internal

    asked = tuple(
        n.strip() for n in os.environ.get(run_names.LOGS_VARIABLE, "").split(",") if n.strip()
    )
    chosen = _choose(internal.log_registry, asked)
    _file = _WarningJournal(
        os.path.join(journal.RUN_DIR, run_names.LOGS_FOLDER, f"torch-{os.getpid()}.log")
    )
    _file.setFormatter(internal.TorchLogsFormatter())
    _chosen = chosen
    _listen(internal.log, *_NEVER)  # it logs where the file of TORCH_TRACE is
    listen_to_logs()

    def is_artifact_enabled(real: Any) -> Any:
        def answer(self: Any, name: str) -> bool:
            """Torch asks for some artifacts here, before it asks their logger. Its configuration
            does not change.
            """
            asks = sys._getframe(1).f_globals.get("__name__", "")
            is_ours = (
                name in chosen.artifacts and asks.startswith("torch.") and asks != internal.__name__
            )
            return is_ours or bool(real(self, name))

        return answer

    wrap_function(internal.LogState, "is_artifact_enabled", is_artifact_enabled)


def _choose(registry: Any, asked: tuple[str, ...]) -> _Chosen:
    chosen, unknown = _Chosen(registry), []
    for item in (*DEFAULT, *asked):
        sign, name = (item[0], item[1:]) if item[:1] in ("+", "-") else ("", item)
        if registry.is_artifact(name):
            chosen.artifacts.add(name)
            continue
        if registry.is_log(name):
            names = registry.log_alias_to_log_qnames[name]
            names = [names] if isinstance(names, str) else names
        elif name.startswith("torch."):  # a module, as TORCH_LOGS takes it
            names = [name]
        else:
            unknown.append(name)
            continue
        chosen.levels.update(dict.fromkeys(names, _LEVELS[sign]))
        if item in asked:
            chosen.named.update(names)
    if unknown:
        journal.write(
            events.AgentProblem(
                hook="logs", problem=f"this torch has no log named {', '.join(unknown)}"
            )
        )
    return chosen


def listen_to_logs() -> None:
    """Listen to the loggers that were made since the last call; cheap where there are none."""
    global _seen
    known = logging.Logger.manager.loggerDict
    if _chosen is None or len(known) == _seen:
        return
    _seen = len(known)
    for name, logger in list(known.items()):
        if f"{name}.".startswith("torch.") and isinstance(logger, logging.Logger):
            level, is_asked = _chosen.level(name)
            if level < math.inf:
                _listen(logger, level, is_asked)


def _listen(logger: logging.Logger, level: float, is_asked: bool) -> None:
    if vars(logger).keys() & {
        "isEnabledFor",
        "makeRecord",
        "filter",
    }:  # by us already, or changed by the program
        return

    def isEnabledFor(asked: int) -> bool:
        caller = sys._getframe(1)
        if type(logger).isEnabledFor(logger, asked):
            return not torch_trace.is_about_our_file(caller.f_back)
        return asked >= level and _may_ask(caller, is_asked)

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
                _write(copy.copy(record))  # what a formatter leaves in a record, the next one takes
            return record
        record = torch_trace.TraceRecord(name, number, fn, line, msg, args, exc_info, func, sinfo)
        _write(record)
        return record

    vars(logger).update(
        isEnabledFor=isEnabledFor,
        makeRecord=makeRecord,
        filter=lambda record: torch_trace.drop_ours(logger, record),
    )


def _may_ask(caller: FrameType, is_asked: bool) -> bool:
    """``logging`` asks before each record; torch itself asks before it prepares what only a record
    needs.
    """
    name = caller.f_globals.get("__name__", "")
    return bool(name == "logging" or (is_asked and name.startswith("torch.")))


def _write(record: logging.LogRecord) -> None:
    if _file is not None:
        _file.handle(record)


class _WarningJournal(logging.FileHandler):
    """A file per process, opened when there is something to say; warnings go to the journal too."""

    def __init__(self, path: str) -> None:
        super().__init__(path, mode="a", delay=True)
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._pid:  # after a fork: a file of our own
            self._pid = os.getpid()
            self.stream = None
            self.baseFilename = os.path.join(
                os.path.dirname(self.baseFilename), f"torch-{self._pid}.log"
            )
        super().emit(record)
        if record.levelno >= logging.WARNING:
            journal.write(
                events.WarningShown(
                    category=record.name,
                    message=cuts.cut_head(record.getMessage(), 4000),
                    file=record.pathname,
                    line=record.lineno,
                )
            )

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk is not the target's problem."""
