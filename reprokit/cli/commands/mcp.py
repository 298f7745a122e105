"""``reprokit mcp``: serve the commands to an agent over the Model Context Protocol."""

from __future__ import annotations

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out
from reprokit.core.shared.errors import BadInput


@shared.command()
@shared.JSON
def mcp(as_json: bool) -> None:
    """Serve capture, attach, show, known and minimize to an agent, over the Model Context Protocol.

    It speaks the protocol on its standard input and output, so an agent starts it. Each tool
    returns what the command prints with --json, reports its progress, and can be cancelled. It
    needs the package mcp: pip install 'reprokit[mcp]'. With --json, print the tools and end.

    \b
    Examples:
      claude mcp add reprokit -- reprokit mcp
      reprokit mcp --json
    """
    try:
        import anyio

        from reprokit.integrations import mcp_server
    except ImportError as problem:
        raise BadInput(
            f"reprokit mcp needs the package mcp, version 2 ({problem}); install it: pip install"
            " 'reprokit[mcp]'"
        ) from problem
    if not as_json:
        mcp_server.server.run()
        return
    tools = anyio.run(mcp_server.server.list_tools)
    rows = [
        {"name": one.name, "description": one.description, "parameters": one.input_schema}
        for one in tools
    ]
    out.RESULTS.print_json({"schema": 1, "tools": rows})
