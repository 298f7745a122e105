"""Whether a program stands alone: what of this machine it needs beyond its interpreter and
installed packages.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from reprokit.core.records.dumps import Link

SYSTEM = ("/dev", "/proc", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/run")
"""Folders that belong to the operating system; what a program names in them is not the user's
file.
"""
_MODULE = re.compile(r"No module named '([\w.]+)'")
_FILE = re.compile(r"No such file or directory: (?:b?'([^']+)'|\"([^\"]+)\")")
_CUSTOMIZES = frozenset({"sitecustomize.py", "usercustomize.py"})
_COMPILERS = ("torch", "triton")


def plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` with only those folders of PYTHONPATH that belong to the interpreter.

    The user's own modules are in the others, and no reader of a repro has those.
    """
    kept = [
        p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p and _is_installed(Path(p))
    ]
    rest = {k: v for k, v in environ.items() if k != "PYTHONPATH"}
    return {**rest, "PYTHONPATH": os.pathsep.join(kept)} if kept else rest


def _is_installed(folder: Path) -> bool:
    """Packages were installed there, or torch is there, or it only customizes each interpreter that
    starts.
    """
    try:
        names = {p.name for p in folder.iterdir()}
    except OSError:
        return False
    if any(n.endswith(".dist-info") for n in names) or names.intersection(_COMPILERS):
        return True
    modules = {
        n
        for n in names
        if n.endswith((".py", ".so")) or (n.isidentifier() and (folder / n).is_dir())
    }
    return bool(modules & _CUSTOMIZES) and modules <= _CUSTOMIZES


def needed_names(link: Link | None) -> str:
    """What a run lacked, as its exception names it; empty where it lacked nothing that can be
    named.
    """
    if link is None:
        return ""
    if link.type == "ModuleNotFoundError" and (found := _MODULE.search(link.message)):
        return f"it imports {found[1]}, which is not in the pack"
    if link.type == "FileNotFoundError" and (found := _FILE.search(link.message)):
        return f"it reads {found[1] or found[2]}, which is not in the pack"
    return ""


def reads_environment(text: str) -> str:
    """What is said of a file of this machine that the text names by its whole path; empty where it
    names none.
    """
    named = next(filter(_is_users, _texts(text)), "")
    return f"it names {named}, which is not in the pack" if named else ""


def _texts(text: str) -> Iterator[str]:
    with contextlib.suppress(SyntaxError, ValueError, RecursionError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _is_users(text: str) -> bool:
    """It is the path of a file or folder that is there, and no part of the system."""
    if not text.startswith(("/", "~/")) or len(text) > 4_000 or "\0" in text or "\n" in text:
        return False
    path = Path(os.path.expanduser(text))
    if (
        len(path.parts) < 2
        or any(path.is_relative_to(folder) for folder in SYSTEM)
        or path == Path("/tmp")  # noqa: S108
    ):
        return False
    try:
        return path.exists()
    except OSError:
        return False
