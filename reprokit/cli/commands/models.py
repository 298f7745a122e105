"""``reprokit models``: the zoo, and what transformers has."""

from __future__ import annotations

import json
from typing import Any

import click

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, terminal


@click.command()
@click.argument("target", required=False, metavar="[hf:TYPE]")
@click.option("--python", help=f"Interpreter whose transformers is asked; default: {shared.USUAL}.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
def models(target: str | None, python: str | None, as_json: bool) -> None:
    """List the models that capture --model knows, with their sizes and what can be set.

    hf: lists the model types of transformers in the interpreter, hf:TYPE or hf:PATH/config.json the
    knobs of one.

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
                f"{target!r} is no hf: target; reprokit models alone lists the zoo, reprokit models"
                " hf:llama one model"
            )
        _hf(target, python, as_json)
        return
    if python is not None:
        raise BadInput("--python is for hf: targets; the zoo is the same everywhere")
    if as_json:
        out.RESULTS.json(
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
    out.RESULTS.table(titles, rows, right=("parameters",), whole=titles[:-1])


def _hf(words: str, python: str | None, as_json: bool) -> None:
    from reprokit.host.environment import ask_transformers
    from reprokit.host.request.target import Target, parse_target

    path = shared.interpreter_option(python)
    target = Target("hf") if words == "hf:" else parse_target(words)
    with terminal.LiveStatus(is_quiet=as_json) as live:
        live.say(f"asking the transformers of {path}")
        told = ask_transformers.ask_transformers(path, target)
    if as_json:
        out.RESULTS.json({"schema": 1, **told})
    elif target.name or target.place:
        _print_one(told)
    else:
        out.RESULTS.line(
            f"transformers {told['transformers']} has {len(told['types'])} model types:"
        )
        for name in told["types"]:
            out.RESULTS.line(f"  hf:{name}")


def _print_one(told: dict[str, Any]) -> None:
    count = _count(told["parameters"]) if told["parameters"] else "an unknown number of"
    inputs = (
        ", ".join(f"{n} {s}" for n, s in told["inputs"].items()) or "none that reprokit can make"
    )
    out.RESULTS.line(
        f"hf:{told['name']}: {told['class']} of transformers {told['transformers']}, {count}"
        " parameters by default"
    )
    out.RESULTS.line(f"inputs {inputs}")
    sets = {
        "--layers": ", ".join(told["layers"]) or "nothing here",
        "--batch-size": f"default {told['batch_size']}",
        "--sequence-length": f"default {told['sequence_length']}",
    }
    for name, text in sets.items():
        out.RESULTS.line(f"  {name:<36} {'sets ' if name == '--layers' else ''}{text}")
    for name, value in told["knobs"].items():
        out.RESULTS.line(f"  --set {name:<30} {json.dumps(value)}")


def _count(number: int) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f} {letter}"
    return str(number)
