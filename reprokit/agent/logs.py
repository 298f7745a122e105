"""Send a chosen set of TORCH_LOGS to a file, so that the target's own output stays its own.

torch sends what is switched on to stderr. We switch on in its own state, add a file handler, and filter
from its stream handlers what only we wanted.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from . import journal

DEFAULT = ("dynamo", "inductor", "dynamic", "recompiles", "graph_breaks", "cudagraphs", "perf_hints")
"""What reports need and what costs nothing measurable; the host's ``REPROKIT_LOGS`` adds to it."""
_ours: set[str] = set()
"""Artifacts that are on because we wanted them, not the target."""
_LEVELS = {"": logging.INFO, "+": logging.DEBUG, "-": logging.ERROR}


def send_to_file() -> None:
    """Switch on the default logs, and those of ``REPROKIT_LOGS`` (names as in TORCH_LOGS), for this process."""
    wanted = [*DEFAULT, *(n.strip() for n in os.environ.get("REPROKIT_LOGS", "").split(",") if n.strip())]
    import torch._logging._internal as internal

    path = os.path.join(journal.RUN_DIR, "logs", f"torch-{os.getpid()}.log")
    real = internal._init_logs

    def _init_logs(*args: Any, **kwargs: Any) -> None:
        """torch starts over on every ``set_logs``; so do we."""
        real(*args, **kwargs)
        _add(internal, wanted, path)

    internal._init_logs = _init_logs
    _add(internal, wanted, path)


def _add(internal: Any, wanted: list[str], path: str) -> None:
    registry, state = internal.log_registry, internal.log_state
    users_artifacts = state.artifact_names - _ours
    users_levels = dict(state.log_qname_to_level)
    unknown = []
    for item in wanted:
        sign, name = (item[0], item[1:]) if item[:1] in ("+", "-") else ("", item)
        if registry.is_artifact(name):
            if name not in users_artifacts:
                state.enable_artifact(name)
                _ours.add(name)
        elif registry.is_log(name):
            for qname in _as_list(registry.log_alias_to_log_qnames[name]):
                if qname not in users_levels:
                    logging.getLogger(qname).setLevel(_LEVELS[sign])
        else:
            unknown.append(name)
    if unknown:
        journal.write("agent_problem", hook="logs", problem=f"this torch has no log named {', '.join(unknown)}")
    for qname in registry.get_artifact_log_qnames():
        internal.configure_artifact_log(logging.getLogger(qname))

    def is_theirs(record: logging.LogRecord) -> bool:
        artifact = getattr(logging.getLogger(record.name), "artifact_name", None)
        if artifact in users_artifacts:
            return True
        if artifact in _ours:
            return False
        level = max(
            (v for q, v in users_levels.items() if record.name == q or record.name.startswith(q + ".")),
            default=logging.WARNING,
        )
        return record.levelno >= level

    handler: logging.Handler = _WarningJournal(path)
    handler.setFormatter(internal.TorchLogsFormatter())
    internal._track_handler(handler)  # torch removes it again when it starts over
    for qname in registry.get_log_qnames():
        logger = logging.getLogger(qname)
        for other in logger.handlers:
            if type(other) is logging.StreamHandler:
                other.addFilter(is_theirs)
        logger.addHandler(handler)


def _as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


class _WarningJournal(logging.FileHandler):
    """A file per process, opened when there is something to say; warnings go to the journal too."""

    def __init__(self, path: str) -> None:
        super().__init__(path, mode="a", delay=True)
        self._pid = os.getpid()

    def emit(self, record: logging.LogRecord) -> None:
        if os.getpid() != self._pid:  # after a fork: a file of our own
            self._pid = os.getpid()
            self.stream = None
            self.baseFilename = os.path.join(os.path.dirname(self.baseFilename), f"torch-{self._pid}.log")
        super().emit(record)
        if record.levelno >= logging.WARNING:
            journal.write(
                "warning",
                category=record.name,
                message=record.getMessage()[:4000],
                file=record.pathname,
                line=record.lineno,
            )

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk is not the target's problem."""
