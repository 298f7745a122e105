"""``reprokit env``: print what a pack contains about this machine and interpreter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from reprokit.cli.shared import option_types, out, terminal
from reprokit.cli.shared import options as shared


@shared.command()
@shared.option(
    "--python",
    type=option_types.PLACE,
    help=f"Interpreter to describe; default: {shared.DEFAULT_PYTHON}.",
)
@shared.option(
    "--gpu",
    is_flag=True,
    help=(
        "Print the properties of the first GPU instead, as a file for reprokit capture --gpu FILE."
    ),
)
@shared.option(
    "--hooks",
    is_flag=True,
    help="Print instead the private functions of torch that reprokit uses, and which are missing.",
)
@shared.JSON
def env(python: str | None, gpu: bool, hooks: bool, as_json: bool) -> None:
    """Print what a pack contains about this machine and interpreter, redacted as in a pack.

    \b
    Examples:
      reprokit env
      reprokit env --python ~/other/venv/bin/python --json
      reprokit env --gpu > gpu.json
      reprokit env --hooks --python ~/nightly/bin/python
    """
    from reprokit.core.shared.contract.serialize import to_json
    from reprokit.host.environment import machine_facts, simulated_gpu
    from reprokit.host.system import private_names

    path = shared.interpreter_option(python)
    if gpu:
        out.RESULTS.print_json(simulated_gpu.list_gpus(path)[0])
        return
    if hooks:
        _print_hooks(path, as_json)
        return
    with terminal.LiveStatus(is_quiet=as_json) as live:
        live.show_message("reading the machine and the interpreter (up to a minute)")
        result = machine_facts.collect_facts(path)
    redactor = private_names.get_redactor()
    facts: dict[str, Any] = redactor.redact_value(result.facts)
    missing = redactor.redact_value(to_json(result.missing))
    if as_json:
        out.RESULTS.print_json(
            {
                "schema": 1,
                "environment": facts,
                "collect_env": redactor.redact_text(result.collect_env),
                "missing": missing,
            }
        )
        return
    for name, value in sorted(facts.items()):
        if name in ("packages", "log_names"):
            text = f"{len(value)} entries (--json prints them)"
        elif isinstance(value, dict):
            text = "; ".join(f"{k} {v}" for k, v in value.items() if v not in (None, "", []))
        else:
            text = json.dumps(value, default=repr)
        out.RESULTS.print_line((name, "bold"), f": {text}")
    for row in missing:
        out.RESULTS.print_line(f"missing {row['what']}: {row['why']}")


def _print_hooks(python: str, as_json: bool) -> None:
    """Print a row for each symbol; exit with status 1 if a row does not fit."""
    from reprokit.host.environment.agent_queries import query_hooked_symbols

    rows = query_hooked_symbols(python)
    unfit = [row for row in rows if row["expected"] == bool(row["problem"])]
    if as_json:
        out.RESULTS.print_json({"schema": 1, "hooks": rows})
    else:
        for row in rows:
            out.RESULTS.print_line(
                f"{_state(row):<17} {row['symbol']} ({row['purpose']}; torch {_versions(row)})"
            )
        out.RESULTS.print_line(f"{len(rows) - len(unfit)} of {len(rows)} rows fit {python}")
    if unfit:
        click.get_current_context().exit(1)


def _versions(row: Mapping[str, Any]) -> str:
    return f"{row['since']} to {row['until']}" if row["until"] else f"{row['since']} on"


def _state(row: Mapping[str, Any]) -> str:
    if row["expected"]:
        return "missing" if row["problem"] else "fits"
    return "not in this torch" if row["problem"] else "still there"
