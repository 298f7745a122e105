"""``reprokit models``: list the models of the zoo, or of transformers."""

from __future__ import annotations

import json
from typing import Any

import click

from reprokit.cli.shared import option_types, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.command_classes import is_given


@shared.command()
@click.argument("target", required=False, metavar="[hf:TYPE]")
@shared.option(
    "--python",
    type=option_types.PLACE,
    help=f"Interpreter with transformers; default: {shared.DEFAULT_PYTHON}.",
)
@shared.JSON
@click.pass_context
def models(ctx: click.Context, target: str | None, python: str | None, as_json: bool) -> None:
    """List the models of the zoo, with their numbers of parameters.

    hf: lists the model types of the interpreter's transformers. hf:TYPE or hf:PATH/config.json
    lists the fields of one model.

    \b
    Examples:
      reprokit models
      reprokit models hf: --python ~/venv/bin/python
      reprokit models hf:llama --json
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.core.shared.zoo import ZOO

    if target is not None:
        if not target.startswith("hf:"):
            raise BadInput(
                f"{target!r} is not an hf: target; reprokit models without it lists the zoo,"
                " reprokit models hf:llama one model"
            )
        _hf(target, python, as_json)
        return
    if is_given(ctx, "python"):
        raise BadInput("--python is for hf: targets; the zoo does not depend on the interpreter")
    if as_json:
        out.RESULTS.print_json(
            {
                "schema": 1,
                "models": [
                    {"name": m.name, "about": m.about, "parameters": m.parameters, "knobs": m.knobs}
                    for m in ZOO.values()
                ],
            }
        )
        return
    rows = [(m.name, _count(m.parameters), str(m.knobs["dtype"]), m.about) for m in ZOO.values()]
    titles = ("model", "parameters", "dtype", "about")
    out.RESULTS.print_table(titles, rows, right=("parameters",), whole=titles[:-1])


def _hf(words: str, python: str | None, as_json: bool) -> None:
    from reprokit.host.environment import query_transformers
    from reprokit.host.request.target import Target, parse_target

    path = shared.interpreter_option(python)
    target = Target("hf") if words == "hf:" else parse_target(words)
    with terminal.LiveStatus(is_quiet=as_json) as live:
        live.show_message(f"reading the models of transformers in {path}")
        document = query_transformers.query_transformers(path, target)
    if as_json:
        out.RESULTS.print_json({"schema": 1, **document})
    elif target.name or target.place:
        _print_one(document)
    else:
        out.RESULTS.print_line(
            f"transformers {document['transformers']} has {len(document['types'])} model types:"
        )
        for name in document["types"]:
            out.RESULTS.print_line(f"  hf:{name}")


def _print_one(document: dict[str, Any]) -> None:
    count = _count(document["parameters"]) if document["parameters"] else "an unknown number of"
    inputs = (
        ", ".join(f"{n} {s}" for n, s in document["inputs"].items())
        or "none that reprokit can generate"
    )
    out.RESULTS.print_line(
        f"hf:{document['name']}: {document['class']} of transformers {document['transformers']},"
        f" {count} parameters by default"
    )
    out.RESULTS.print_line(f"inputs {inputs}")
    sets = {
        "--layers": ", ".join(document["layers"]) or "no field",
        "--batch-size": f"default {document['batch_size']}",
        "--sequence-length": f"default {document['sequence_length']}",
    }
    for name, text in sets.items():
        out.RESULTS.print_line(f"  {name:<36} {'sets ' if name == '--layers' else ''}{text}")
    for name, value in document["knobs"].items():
        out.RESULTS.print_line(f"  --set {name:<30} {json.dumps(value)}")


def _count(number: int) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return str(number)
