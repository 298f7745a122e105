"""Collect the private names of this machine, and redact records with them.

``core/redaction/redactor.py`` has the rules.
"""

from __future__ import annotations

import dataclasses
import functools
import getpass
import json
import os
import socket
from pathlib import Path

from reprokit.core.records import dumps
from reprokit.core.records.journal_reader import private_fields
from reprokit.core.redaction.redactor import ALLOWED_VARIABLES, Redactor
from reprokit.core.redaction.rules import secret_names
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.shared import cuts
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import (
    Begin,
    KernelWritten,
    RaisedEvent,
    Torch,
    TransformersModel,
)
from reprokit.host.system import host_log


def gather_names() -> PrivateNames:
    """Return the names of this machine and its user, and the values of secret environment
    variables.
    """
    users = {
        os.environ.get(n, "")
        for n in ("USER", "LOGNAME", "SUDO_USER", "USERNAME", "SLURM_JOB_USER")
    }
    with host_log.suppress(Exception):  # a uid in a container may have no passwd entry
        users.add(getpass.getuser())
    homes = {os.environ.get("HOME", "")}
    with host_log.suppress(RuntimeError):
        homes.add(str(Path.home()))
        homes.add(str(Path.home().resolve()))
    host = socket.gethostname()
    hosts = {
        host,
        host.split(".")[0],
        *(os.environ.get(n, "") for n in ("HOSTNAME", "MASTER_ADDR", "SLURMD_NODENAME")),
    }
    hosts = {h for h in hosts if not h.replace(".", "").isdigit()}
    secrets = {
        v for n, v in os.environ.items() if secret_names.is_secret(n) and n not in ("PWD", "OLDPWD")
    }
    return PrivateNames(_sorted(users), _sorted(hosts), _sorted(homes), _sorted(secrets))


def get_redactor() -> Redactor:
    """Return the redactor of this process.

    It is shared, so that a secret has the same placeholder in all output of the process.
    """
    return _redactor(gather_names())


@functools.lru_cache(maxsize=4)
def _redactor(known: PrivateNames) -> Redactor:
    return Redactor(known)


def redact_events(events: list[Event]) -> list[Event]:
    """Return the events without private text. Paths stay, because the rules of the judge need
    them.
    """
    redactor = get_redactor()
    redactor.know_names(name for event in events for name in _names_of(event))
    return [_redact_event(event, redactor) for event in events]


def _names_of(event: Event) -> list[str]:
    """Return the names of passes, kernels, models and versions in an event."""
    if isinstance(event, Torch):
        return [event.version]
    if isinstance(event, (Begin, KernelWritten)):
        return [event.name]
    return [event.kind] if isinstance(event, TransformersModel) else []


def _redact_event(event: Event, redactor: Redactor) -> Event:
    if isinstance(event, RaisedEvent):
        chain = (
            dataclasses.replace(link, message=redactor.redact_text(link.message))
            for link in event.chain
        )
        return dataclasses.replace(event, chain=tuple(chain))
    names = private_fields(event.ev)
    return (
        dataclasses.replace(event, **{n: redactor.redact_value(getattr(event, n)) for n in names})
        if names
        else event
    )


def redact_raised(raised: dumps.Raised) -> dumps.Raised:
    """Return the exception without private text in its messages."""
    chain = (
        dataclasses.replace(link, message=get_redactor().redact_text(link.message))
        for link in raised.chain
    )
    return dataclasses.replace(raised, chain=tuple(chain))


def redact_fault(fault: dumps.Fault) -> dumps.Fault:
    """Return the fatal signal without private text in its headline and its source."""
    redact = get_redactor().redact_text
    return dataclasses.replace(fault, headline=redact(fault.headline), source=redact(fault.source))


def redact_tail(text: str, max_chars: int, missing_bytes: int) -> str:
    """Redact a text, then return its end, which starts at the start of a line.

    ``missing_bytes`` is the size of what was already cut before ``text``.
    """
    redacted = get_redactor().redact_text(
        f"{cuts.cut_mark(missing_bytes, 'bytes')}\n{text[text.find(chr(10)) + 1 :]}"
        if missing_bytes
        else text
    )
    if len(redacted) <= max_chars:
        return redacted
    return redacted[redacted.find("\n", max(0, len(redacted) - max_chars)) + 1 :]


def allowed_variables() -> dict[str, str]:
    """Return the environment variables that a pack may contain; the caller redacts their values."""
    return {
        n: v
        for n, v in sorted(os.environ.items())
        if ALLOWED_VARIABLES.fullmatch(n) and not secret_names.is_secret(n)
    }


def _sorted(values: set[str]) -> tuple[str, ...]:
    """Return the values and their spellings in a JSON string, escaped to ASCII or not."""
    escaped = {
        json.dumps(v, ensure_ascii=ascii_only)[1:-1] for v in values for ascii_only in (True, False)
    }
    return tuple(sorted(v for v in values | escaped if v))
