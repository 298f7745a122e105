"""An MCP server (Model Context Protocol) with the commands that an agent needs.

Each tool starts ``reprokit COMMAND --json`` as a child process and returns its JSON document. What
the child prints about its progress becomes progress of the call. A call that is cancelled
interrupts its child, as Ctrl-C does, so a capture keeps what it has found.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from reprokit import __version__

GRACE_S = 30.0
"""The time in which an interrupted child can write its pack before it is killed."""
MAX_LINE_CHARS = 500
_OF_LOG = re.compile(r"(reprokit: )?\d{4}-\d\d-\d\dT")
"""A line of the log, which ``--verbose`` prints beside the progress."""
INSTRUCTIONS = """\
reprokit turns a failing, hanging or silently wrong torch.compile run into a verdict, a minimal
proved program and a pack for PyTorch's maintainers. Start with capture for a program that fails,
and with attach for a process that hangs now. Nothing is posted anywhere.
"""
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Part = Literal["graphs", "guards", "recompiles", "breaks", "kernels"]
OutputDir = Annotated[str, Field(description="folder for the results; default: reprokit-out")]
Agreed = Annotated[
    bool,
    Field(description="the user has agreed to run the program, which a stranger may have written"),
]

server: MCPServer[Any] = MCPServer("reprokit", version=__version__, instructions=INSTRUCTIONS)


@server.tool()
async def capture(
    context: Context[Any, Any],
    command: Annotated[
        list[str], Field(description="the words of a command, such as python train.py --steps 10")
    ] = [],  # noqa: B006 - pydantic copies it
    target: Annotated[
        str, Field(description="instead of command: file.py:factory, hf:TYPE, or a zoo name")
    ] = "",
    files: Annotated[
        list[str],
        Field(
            description="instead of command: files that torch wrote, such as a TORCH_TRACE folder"
        ),
    ] = [],  # noqa: B006
    timeout_s: Seconds = 600,
    budget_s: Annotated[Seconds, Field(description="for the search for a smaller program")] = 300,
    minimize: bool = True,
    compare: Annotated[bool, Field(description="compare the results with eager mode")] = False,
    may_run_files: Agreed = False,
    output_dir: OutputDir = "",
) -> dict[str, Any]:
    """Run a program or a model, record what torch.compile does, and write a pack."""
    if sum(map(bool, (command, target, files))) != 1:
        raise ToolError("give exactly one of command, target and files")
    words = ["capture", "--budget", f"{budget_s}s", *_output(output_dir)]
    if files:
        words += ["--yes"] * may_run_files
        return await run_reprokit(context, [*words, *map(_argument, files)])
    words += ["--timeout", f"{timeout_s}s"]
    words += ["--compare"] * compare
    words += [] if minimize else ["--no-minimize"]
    return await run_reprokit(context, [*words, _argument(target)] if target else words, command)


@server.tool()
async def attach(
    context: Context[Any, Any],
    pid: Annotated[int, Field(ge=1)],
    stall_s: Annotated[Seconds, Field(description="no progress for this long is a hang")] = 30,
    output_dir: OutputDir = "",
) -> dict[str, Any]:
    """Find out why a running process does not advance, without stopping it."""
    words = ["attach", str(pid), "--stall", f"{stall_s}s", *_output(output_dir)]
    return await run_reprokit(context, words)


@server.tool()
async def show(
    context: Context[Any, Any],
    pack: str,
    parts: Annotated[
        list[Part], Field(description="parts of each compile of its trace; default: the report")
    ] = [],  # noqa: B006
) -> dict[str, Any]:
    """Verify a pack and return its contents. Nothing in the pack is run."""
    return await run_reprokit(context, ["show", _argument(pack), *(f"--{part}" for part in parts)])


@server.tool()
async def known(
    context: Context[Any, Any],
    failure: Annotated[str, Field(description="a pack, a signature, or the text of an error")],
) -> dict[str, Any]:
    """Say whether a failure is known: its issue, the versions that fail, and what avoids it."""
    return await run_reprokit(context, ["known"], [failure])


@server.tool()
async def minimize(
    context: Context[Any, Any],
    pack: str,
    budget_s: Seconds = 300,
    may_run_files: Agreed = False,
    output_dir: OutputDir = "",
) -> dict[str, Any]:
    """Find the smallest program with the failure of a pack or a run directory."""
    words = ["minimize", _argument(pack), "--budget", f"{budget_s}s", *_output(output_dir)]
    return await run_reprokit(context, words + ["--yes"] * may_run_files)


def _argument(path: str) -> str:
    """Return a path that is no option."""
    return f"./{path}" if path.startswith("-") else path


def _output(folder: str) -> list[str]:
    return ["--output-dir", folder] if folder else []


async def run_reprokit(
    context: Context[Any, Any], words: Sequence[str], behind: Sequence[str] = ()
) -> dict[str, Any]:
    """Run a command of reprokit with ``--json``, and ``behind`` two dashes; return its document and
    its exit code.

    Raises ToolError, with the line of reprokit, for a call without a document.
    """
    call = [sys.executable, "-m", "reprokit", *words, "--verbose", "--json"]
    call += ["--", *behind] if behind else []
    lines: list[str] = []
    parts: list[str] = []
    process = await anyio.open_process(call, stdin=subprocess.DEVNULL, start_new_session=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_report_progress, context, process.stderr, lines)
            async for text in TextReceiveStream(process.stdout, errors="replace"):
                parts.append(text)
        await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    output = "".join(parts)
    try:
        document = json.loads(output)
    except ValueError:
        last = lines[-1] if lines else f"exit code {process.returncode}"
        raise ToolError(last) from None
    return {**document, "exit_code": process.returncode}


async def _report_progress(
    context: Context[Any, Any], stream: ByteReceiveStream, lines: list[str]
) -> None:
    """Report each line of standard error, until it ends."""
    rest = ""
    async for text in TextReceiveStream(stream, errors="replace"):
        *complete, rest = (rest + text).replace("\r", "\n").split("\n")
        for line in complete:
            if not line.strip() or _OF_LOG.match(line):
                continue
            lines.append(line.strip()[:MAX_LINE_CHARS])
            await context.report_progress(len(lines), None, lines[-1].removeprefix("reprokit: "))
    if rest.strip():
        lines.append(rest.strip()[:MAX_LINE_CHARS])


async def _end(process: Process) -> None:
    """Interrupt a child that still runs, and kill it if it does not end."""
    if process.returncode is not None:
        return
    for number, limit_s in ((signal.SIGINT, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        with anyio.move_on_after(limit_s):
            await process.wait()
            return
