"""``reprokit env``: what a pack would say about this machine."""

from __future__ import annotations

import json
from typing import Any

import click

from reprokit.cli.shared import options as shared
from reprokit.cli.shared import out, terminal


@click.command()
@click.option("--python", help=f"Interpreter to ask; default: {shared.USUAL}.")
@click.option(
    "--gpu",
    is_flag=True,
    help=(
        "Print the properties of the first GPU instead, as a file for reprokit capture --gpu FILE."
    ),
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
def env(python: str | None, gpu: bool, as_json: bool) -> None:
    """Print what a pack would say about this machine and interpreter, redacted as a pack is.

    \b
    Examples:
      reprokit env
      reprokit env --python ~/other/venv/bin/python --json
      reprokit env --gpu > gpu.json
    """
    from reprokit.core.shared.contract.serialize import to_json
    from reprokit.host.environment import machine_facts, simulated_gpu
    from reprokit.host.system import private_names

    path = shared.interpreter_option(python)
    if gpu:
        out.RESULTS.json(simulated_gpu.gpu_here(path)[0])
        return
    with terminal.LiveStatus(is_quiet=as_json) as live:
        live.say("asking the machine and the interpreter (up to a minute)")
        found = machine_facts.collect_facts(path)
    redactor = private_names.redactor()
    facts: dict[str, Any] = redactor.value(found.facts)
    missing = redactor.value(to_json(found.missing))
    if as_json:
        out.RESULTS.json(
            {
                "schema": 1,
                "environment": facts,
                "collect_env": redactor.text(found.collect_env),
                "missing": missing,
            }
        )
        return
    for name, value in sorted(facts.items()):
        if name in ("packages", "log_names"):
            text = f"{len(value)} (all with --json)"
        elif isinstance(value, dict):
            text = "; ".join(f"{k} {v}" for k, v in value.items() if v not in (None, "", []))
        else:
            text = json.dumps(value, default=repr)
        out.RESULTS.line((name, "bold"), f": {text}")
    for row in missing:
        out.RESULTS.line(f"missing {row['what']}: {row['why']}")
