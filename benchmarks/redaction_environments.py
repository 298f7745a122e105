"""Environments of machines that measurements of redaction pretend to run on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from reprokit.core.redaction.redactor import Redactor
from reprokit.host.system import private_names


def bare_environ(home: Path, **more: str) -> dict[str, str]:
    """Return the environment of a machine on which nothing else is set."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir()) / "redaction-cache"),
        **more,
    }


def redactor_in(variables: Mapping[str, str]) -> Redactor:
    """Return the redactor of a process with these variables."""
    environ = {"PATH": os.environ["PATH"], "HOME": "/home/sam", **variables}
    with mock.patch.dict(os.environ, environ, clear=True):
        return Redactor(private_names.gather_names())
