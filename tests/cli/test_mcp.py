"""``reprokit mcp`` serves the commands; the client is that of the official SDK."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.core.test_trace_records import TRACE
from tests.support.damaged_files import build_pack
from tests.support.environments import clean_environ, with_small_torch
from tests.support.reprokit_calls import reprokit


def call(work: Callable[[Client], Awaitable[Any]], folder: Path, **variables: str) -> Any:
    """Start a server, and do ``work`` with a client of it."""

    async def main() -> Any:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "reprokit", "mcp"],
            cwd=folder,
            env=clean_environ(**variables),
        )
        with anyio.fail_after(180):
            async with Client(stdio_client(parameters)) as client:
                return await work(client)

    return anyio.run(main)


def test_the_tools_are_those_of_the_documentation(tmp_path: Path) -> None:
    """The client and ``--json`` list the same tools."""

    async def work(client: Client) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    names = ["capture", "attach", "show", "known", "minimize"]
    assert call(work, tmp_path) == names
    assert [tool["name"] for tool in reprokit("mcp", "--json").json["tools"]] == names


def test_tools_return_documents_and_errors(tmp_path: Path) -> None:
    """A pack is shown, a record is read without running it, and a wrong call gets one line."""
    (tmp_path / "pack.tar.gz").write_bytes(build_pack({"verdict.json": b"{}"}))
    (tmp_path / "trace.log").write_text(TRACE)

    async def work(client: Client) -> list[Any]:
        return [
            await client.call_tool("show", {"pack": "pack.tar.gz"}),
            await client.call_tool("capture", {"files": ["trace.log"]}),
            await client.call_tool("known", {"failure": "--json"}),
            await client.call_tool("show", {"pack": "--help"}),
            await client.call_tool("capture", {}),
        ]

    shown, recorded, unknown, missing, empty = call(work, tmp_path)
    assert shown.structured_content["verified"] is True
    assert recorded.structured_content["kind"] == "exception"
    assert recorded.structured_content["exit_code"] == 1
    assert recorded.structured_content["pack"] is None
    assert not unknown.is_error
    assert missing.is_error or "--help" in str(missing.structured_content)
    assert empty.is_error and "exactly one" in str(empty.content)


def test_a_capture_reports_its_progress(tmp_path: Path) -> None:
    """What the capture prints on its way arrives while the call runs."""
    seen: list[str] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    async def work(client: Client) -> Any:
        words = [sys.executable, "-c", "import torch; raise SystemExit(3)"]
        arguments = {"command": words, "output_dir": "out", "minimize": False}
        return await client.call_tool("capture", arguments, progress_callback=note)

    done = call(work, tmp_path, PYTHONPATH=with_small_torch(tmp_path))
    assert done.structured_content["exit_code"] == 3, done
    assert Path(done.structured_content["pack"]).exists()
    assert any("packing" in line for line in seen), seen


def test_a_cancelled_call_leaves_no_process(tmp_path: Path) -> None:
    """The capture is interrupted, its program ends with it, and the server goes on."""
    program = "import time; open('started', 'w').close(); time.sleep(600)"

    async def work(client: Client) -> list[psutil.Process]:
        words = [sys.executable, "-c", program]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.call_tool, "capture", {"command": words, "output_dir": "out"})
            while not (tmp_path / "started").exists():
                await anyio.sleep(0.1)
            own = psutil.Process().children()
            (started,) = (one for one in own if one.cmdline()[-2:] == ["reprokit", "mcp"])
            below = started.children(recursive=True)
            tasks.cancel_scope.cancel()
        assert (await client.list_tools()).tools
        with anyio.fail_after(90):
            while any(one.is_running() for one in below):
                await anyio.sleep(0.2)
        return below

    assert len(call(work, tmp_path)) >= 2


def test_without_the_sdk_one_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "mcp.py").write_text("raise ImportError('there is no mcp')")
    done = subprocess.run(
        [sys.executable, "-m", "reprokit", "mcp"],
        env=clean_environ(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "pip install 'reprokit[mcp]'" in done.stderr
