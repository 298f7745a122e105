"""Find what a program needs of this machine beyond its interpreter and installed packages."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from reprokit.core.records.dumps import Link
from reprokit.host.system import host_log

SYSTEM = ("/dev", "/proc", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/run")
"""Folders of the operating system; files in them are not the user's."""
_MODULE = re.compile(r"No module named '([\w.]+)'")
_FILE = re.compile(r"No such file or directory: (?:b?'([^']+)'|\"([^\"]+)\")")
_CUSTOMIZES = frozenset({"sitecustomize.py", "usercustomize.py"})
_COMPILERS = ("torch", "triton")
_PORTS = ("MASTER_PORT", "init_process_group", "tcp://", "socket", "init_device_mesh")


def plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with only those folders of PYTHONPATH that belong to the interpreter.

    The other folders have the user's own modules, which no reader of a repro has.
    """
    kept = [
        p for p in environ.get("PYTHONPATH", "").split(os.pathsep) if p and _is_installed(Path(p))
    ]
    rest = {k: v for k, v in environ.items() if k != "PYTHONPATH"}
    return {**rest, "PYTHONPATH": os.pathsep.join(kept)} if kept else rest


def _is_installed(folder: Path) -> bool:
    """Return True for a folder with installed packages, with torch, or with only sitecustomize."""
    try:
        names = {p.name for p in folder.iterdir()} - {"__pycache__"}
    except OSError as problem:
        host_log.log_ignored(problem)
        return False
    if any(n.endswith(".dist-info") for n in names) or names.intersection(_COMPILERS):
        return True
    modules = {
        n
        for n in names
        if n.endswith((".py", ".so")) or (n.isidentifier() and (folder / n).is_dir())
    }
    return bool(modules & _CUSTOMIZES) and modules <= _CUSTOMIZES


def opens_port(text: str) -> bool:
    """Return whether a program names what opens a port, which two runs at once cannot do."""
    return any(word in text for word in _PORTS)


def missing_dependency(link: Link | None) -> str:
    """Return which module or file a run lacked, as its exception names it; empty where none."""
    if link is None:
        return ""
    if link.type == "ModuleNotFoundError" and (match := _MODULE.search(link.message)):
        return f"it imports {match[1]}, which is not in the pack"
    if link.type == "FileNotFoundError" and (match := _FILE.search(link.message)):
        return f"it reads {match[1] or match[2]}, which is not in the pack"
    return ""


def user_file_named_in(text: str) -> str:
    """Return which file of this machine the text names by an absolute path; empty where none."""
    named = next(filter(_is_users, _texts(text)), "")
    return f"it names {named}, which is not in the pack" if named else ""


def _texts(text: str) -> Iterator[str]:
    with host_log.suppress(SyntaxError, ValueError, RecursionError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _is_users(text: str) -> bool:
    """Return True for the path of an existing file or folder outside the operating system's."""
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
    except OSError as problem:
        host_log.log_ignored(problem)
        return False
