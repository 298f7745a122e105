"""What is private on this machine; ``core/redact.py`` says how it is hidden."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
from pathlib import Path

from ..core.redact import ALLOWED_VARIABLES, SECRET_NAME
from ..core.redact_rules import Private


def gather() -> Private:
    """Names of this machine and its user, and the values of secret variables of this environment."""
    users = {os.environ.get(n, "") for n in ("USER", "LOGNAME", "SUDO_USER", "USERNAME", "SLURM_JOB_USER")}
    with contextlib.suppress(Exception):  # no passwd entry: a container's bare uid
        users.add(getpass.getuser())
    homes = {os.environ.get("HOME", "")}
    with contextlib.suppress(RuntimeError):
        homes.add(str(Path.home()))
        homes.add(str(Path.home().resolve()))
    host = socket.gethostname()
    hosts = {host, host.split(".")[0], *(os.environ.get(n, "") for n in ("HOSTNAME", "MASTER_ADDR", "SLURMD_NODENAME"))}
    hosts = {h for h in hosts if not h.replace(".", "").isdigit()}
    secrets = {v for n, v in os.environ.items() if SECRET_NAME.search(n)}
    return Private(_sorted(users), _sorted(hosts), _sorted(homes), _sorted(secrets))


def allowed_variables() -> dict[str, str]:
    """The environment variables that may leave the machine; their values are still redacted."""
    return {n: v for n, v in sorted(os.environ.items()) if ALLOWED_VARIABLES.fullmatch(n) and not SECRET_NAME.search(n)}


def _sorted(values: set[str]) -> tuple[str, ...]:
    """The values, and how they stand inside a JSON string, escaped to ASCII or not."""
    escaped = {json.dumps(v, ensure_ascii=ascii_only)[1:-1] for v in values for ascii_only in (True, False)}
    return tuple(sorted(v for v in values | escaped if v))
