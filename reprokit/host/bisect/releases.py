"""List the releases of torch in the package index, by means of pip."""

from __future__ import annotations

import re

from packaging.version import InvalidVersion, Version

from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect.torch_environments import (
    InstallOptions,
    pip_command,
    without_user_environment,
)
from reprokit.host.request import interpreter
from reprokit.host.system import interrupts
from reprokit.host.system.child_commands import CommandFailed, run_for_output

INDEX_TIMEOUT_S = 120.0


def known_releases(options: InstallOptions) -> list[Version]:
    """Return the releases with files for the interpreter of ``options``, oldest first.

    Raises:
        BadInput: the package index gives no answer.
    """
    base = interpreter.check_interpreter(options.python)
    command = [
        *pip_command(base),
        "--python",
        base,
        "index",
        "versions",
        "torch",
        "--retries",
        "1",
        *options.index_options(),
    ]
    try:
        with without_user_environment(), interrupts.allowed():
            output = run_for_output(command, INDEX_TIMEOUT_S)
    except CommandFailed as problem:
        raise BadInput(
            f"the package index does not list the releases of torch ({problem}); name them with"
            " --versions"
        ) from problem
    match = re.search(r"^Available versions: (.+)$", output, re.MULTILINE)
    names = match[1].split(",") if match else []
    return sorted({Version(v.public) for name in names if (v := _parse_version(name.strip()))})


def _parse_version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
