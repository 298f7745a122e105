"""Which releases of torch there are, as the package index tells them to pip."""

from __future__ import annotations

import re

from packaging.version import InvalidVersion, Version

from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect.torch_environments import InstallOptions, pip_of, without_user_environment
from reprokit.host.request import interpreter
from reprokit.host.system import interrupts
from reprokit.host.system.child_question import NoAnswer, ask_child

INDEX_S = 120.0


def known_releases(options: InstallOptions) -> list[Version]:
    """The releases that have files for the interpreter of ``options``, oldest first; raises
    BadInput when nobody says.
    """
    base = interpreter.check_interpreter(options.python)
    command = [
        *pip_of(base),
        "--python",
        base,
        "index",
        "versions",
        "torch",
        "--retries",
        "1",
        *options.where_from(),
    ]
    try:
        with without_user_environment(), interrupts.allowed():
            told = ask_child(command, INDEX_S)
    except NoAnswer as problem:
        raise BadInput(
            f"the package index did not say which releases of torch there are ({problem}); name"
            " them with --versions"
        ) from problem
    found = re.search(r"^Available versions: (.+)$", told, re.MULTILINE)
    names = found[1].split(",") if found else []
    return sorted({Version(v.public) for name in names if (v := _read(name.strip()))})


def _read(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
