"""What is private on this machine; ``core/redaction/redactor.py`` says how it is hidden."""

from __future__ import annotations

import contextlib
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
from reprokit.core.shared.contract.events import Event, RaisedEvent


def gather_names() -> PrivateNames:
    """Names of this machine and its user, and the values of secret variables of this
    environment.
    """
    users = {
        os.environ.get(n, "")
        for n in ("USER", "LOGNAME", "SUDO_USER", "USERNAME", "SLURM_JOB_USER")
    }
    with contextlib.suppress(Exception):  # no passwd entry: a container's bare uid
        users.add(getpass.getuser())
    homes = {os.environ.get("HOME", "")}
    with contextlib.suppress(RuntimeError):
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


def redactor() -> Redactor:
    """The redactor of this process: a secret has the same placeholder in all output of one
    process.
    """
    return _redactor(gather_names())


@functools.lru_cache(maxsize=4)
def _redactor(known: PrivateNames) -> Redactor:
    return Redactor(known)


def events_text(told: list[Event]) -> list[Event]:
    """Events without private text of the target; paths stay, because the rules use them."""
    hider = redactor()
    return [_event(one, hider) for one in told]


def _event(told: Event, hider: Redactor) -> Event:
    if isinstance(told, RaisedEvent):
        chain = (dataclasses.replace(link, message=hider.text(link.message)) for link in told.chain)
        return dataclasses.replace(told, chain=tuple(chain))
    names = private_fields(told.ev)
    return (
        dataclasses.replace(told, **{n: hider.value(getattr(told, n)) for n in names})
        if names
        else told
    )


def redact_raised(found: dumps.Raised) -> dumps.Raised:
    """An exception without private text in its messages."""
    chain = (
        dataclasses.replace(link, message=redactor().text(link.message)) for link in found.chain
    )
    return dataclasses.replace(found, chain=tuple(chain))


def redact_fault(found: dumps.Fault) -> dumps.Fault:
    """A fatal signal without private text in its headline."""
    return dataclasses.replace(found, headline=redactor().text(found.headline))


def redacted_tail(text: str, most: int, gone: int) -> str:
    """The end of a text, redacted before it is cut; ``gone`` bytes before the text are missing
    already.
    """
    hidden = redactor().text(
        f"{cuts.cut_mark(gone, 'bytes')}\n{text[text.find(chr(10)) + 1 :]}" if gone else text
    )
    if len(hidden) <= most:
        return hidden
    return hidden[hidden.find("\n", max(0, len(hidden) - most)) + 1 :]


def allowed_variables() -> dict[str, str]:
    """The environment variables that may leave the machine; their values are still redacted."""
    return {
        n: v
        for n, v in sorted(os.environ.items())
        if ALLOWED_VARIABLES.fullmatch(n) and not secret_names.is_secret(n)
    }


def _sorted(values: set[str]) -> tuple[str, ...]:
    """The values, and how they stand inside a JSON string, escaped to ASCII or not."""
    escaped = {
        json.dumps(v, ensure_ascii=ascii_only)[1:-1] for v in values for ascii_only in (True, False)
    }
    return tuple(sorted(v for v in values | escaped if v))
