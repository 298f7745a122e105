"""``reprokit models``: the zoo."""

from __future__ import annotations

import click

from . import screen


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
def models(as_json: bool) -> None:
    """List the models that capture --model knows, with their sizes and what can be set.

    \b
    Examples:
      reprokit models
      reprokit models --json
    """
    from ..core.zoo import ZOO

    if as_json:
        screen.print_json(
            {
                "schema": 1,
                "models": [
                    {"name": m.name, "about": m.about, "parameters": m.parameters, "knobs": m.knobs}
                    for m in ZOO.values()
                ],
            }
        )
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("model", "parameters", "dtype", "about"):
        table.add_column(title, justify="right" if title == "parameters" else "left", no_wrap=title != "about")
    for m in ZOO.values():
        table.add_row(m.name, _count(m.parameters), m.knobs["dtype"], m.about)
    screen.console().print(table)


def _count(number: int) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return str(number)
