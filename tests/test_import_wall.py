"""The wall: core is pure, the agent needs only torch, the host never imports torch, only cli prints."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

PACKAGE = ROOT / "reprokit"
STDLIB = set(sys.stdlib_module_names)


def imports(path: Path) -> list[tuple[int, str]]:
    """Every import of a file as (level of relativeness, module)."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(0, a.name) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            found.append((node.level, node.module or ""))
    return found


def files(ring: str) -> list[Path]:
    return sorted((PACKAGE / ring).rglob("*.py"))


@pytest.mark.parametrize("path", files("core"), ids=lambda p: p.name)
def test_core_is_standard_library_without_io_or_clock(path: Path) -> None:
    """core imports itself and pure standard library modules."""
    impure = {"os", "io", "pathlib", "time", "datetime", "subprocess", "socket", "shutil", "threading", "tempfile"}
    inside = len(path.relative_to(PACKAGE / "core").parts)  # so many dots stay in the ring
    for level, module in imports(path):
        top = module.split(".")[0]
        assert 1 <= level <= inside or (level == 0 and top in STDLIB - impure), f"{path.name} imports {module}"


@pytest.mark.parametrize("path", files("agent"), ids=lambda p: p.name)
def test_agent_needs_only_torch_and_standard_library(path: Path) -> None:
    """The agent is copied under another name without the host: its own imports are relative, to core or agent."""
    for level, module in imports(path):
        top = module.split(".")[0]
        if level == 0:
            ours = path.name == "sitecustomize.py" and module.startswith("_reprokit.")
            assert ours or top in STDLIB | {"torch", "triton"}, f"{path.name} imports {module}"
        else:
            inside = len(path.relative_to(PACKAGE / "agent").parts)
            is_core = level == inside + 1 and top == "core"
            assert 1 <= level <= inside or is_core, f"{path.name} reaches out of its ring to {module}"


NETWORK = {"http", "ftplib", "smtplib", "poplib", "imaplib", "telnetlib", "xmlrpc", "socketserver", "ssl", "asyncio"}
SOCKETS = {"private.py": "the name of this host", "guarded.py": "a pair of sockets between two of our processes"}
"""Modules that may import ``socket``, and what for."""


@pytest.mark.parametrize("path", [*files("core"), *files("host"), *files("cli")], ids=lambda p: p.name)
def test_nothing_opens_a_connection(path: Path) -> None:
    """No module imports a client of the network; two import socket, and connect nothing."""
    for _, module in imports(path):
        assert module.split(".")[0] not in NETWORK and module != "urllib.request", f"{path.name} imports {module}"
        assert module != "socket" or path.name in SOCKETS, f"{path.name} imports {module}"
    called = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
    assert path.name not in SOCKETS or not called & {"connect", "create_connection", "sendto", "getaddrinfo"}


@pytest.mark.parametrize("path", files("host"), ids=lambda p: p.name)
def test_host_imports_neither_torch_nor_agent_nor_screen(path: Path) -> None:
    """The watcher never imports the watched, and leaves talking to cli."""
    for level, module in imports(path):
        assert module.split(".")[0] not in {"torch", "triton", "click", "rich"}, f"{path.name} imports {module}"
        assert not (level == 2 and module.split(".")[0] in {"agent", "cli"}), f"{path.name} imports {module}"


@pytest.mark.parametrize("path", [*files("core"), *files("host")], ids=lambda p: p.name)
def test_only_cli_prints_or_exits(path: Path) -> None:
    """One place talks to people."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"print", "sys.exit", "input"}, f"{path.name}:{node.lineno} calls {called}"


def test_the_whole_host_runs_without_torch() -> None:
    """Importing every room of host and cli leaves torch unimported."""
    modules = [
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for r in ("host", "cli", "core")
        for p in files(r)
        if p.name not in ("guardian.py", "gpus.py")
    ]
    code = f"import sys; [__import__(m) for m in {modules!r}]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_rooms_stay_small() -> None:
    """A room past 300 lines is split, or says why in this list."""
    allowed: dict[str, int] = {}
    for path in PACKAGE.rglob("*.py"):
        lines = path.read_text().count("\n")
        assert lines <= allowed.get(path.name, 300), f"{path.relative_to(ROOT)} has {lines} lines"
