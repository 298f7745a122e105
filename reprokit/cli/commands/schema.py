"""``reprokit schema``: print the JSON Schema of what a command prints with ``--json``."""

from __future__ import annotations

import click

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out
from reprokit.core.shared.errors import BadInput


@shared.command()
@click.argument("command", nargs=-1)
@shared.JSON
def schema(command: tuple[str, ...], as_json: bool) -> None:
    """Print the JSON Schema (draft 2020-12) of what COMMAND prints with --json.

    Without COMMAND, the schema of all commands. The output is JSON also without --json.

    \b
    Examples:
      reprokit schema capture
      reprokit schema nightly run
      reprokit schema > reprokit.schema.json
    """
    from reprokit.cli.documents import json_schema

    name = " ".join(command)
    if name and name not in json_schema.DOCUMENTS:
        known = ", ".join(json_schema.DOCUMENTS)
        raise BadInput(
            f"there is no command {name!r} with a JSON document; the commands are {known}"
        )
    out.RESULTS.print_json(
        json_schema.schema_of_command(name) if name else json_schema.schema_of_all()
    )
