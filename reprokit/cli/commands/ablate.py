"""``reprokit ablate``: with which backends, modes and switches does it fail?"""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import consent, out, terminal
from reprokit.cli.shared import options as shared

_SAYS = {
    "same": "the same failure",
    "other": "another failure",
    "passes": "passes",
    "unresolved": "no answer",
}


@click.command(
    epilog="Exit codes: 0 no step fails, 1 one does, 2 wrong usage, 3 unknown, 130 interrupted."
)
@shared.ASKING
@click.pass_context
def ablate(
    ctx: click.Context,
    what: str,
    python: str | None,
    timeout: float,
    yes: bool,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Compile in every other way, and say with which it fails, where it begins, and what avoids it.

    The ablation steps: the program's own backend, none of its own passes, backends from eager to
    inductor, modes, dynamic, fullgraph, caches, threads, fusion. Below the first backend that
    fails, the one pass or lowering that the failure takes is searched. A target is captured first,
    and leaves a pack.

    \b
    Examples:
      reprokit ablate model.py:make
      reprokit ablate reprokit-model-make-wrong-result-1f2e3d4c5b6a.tar.gz
    """
    with terminal.LiveStatus(is_quiet=as_json) as live:
        if shared.is_pack(what):
            told = _of_pack(Path(what), python, yes, output_dir, live)
        else:
            told = _of_target(what, python, timeout, output_dir, live)
    if as_json:
        out.RESULTS.json(told)
    else:
        _print(told)
    ctx.exit(_status(told.get("ablation")))


def _of_target(
    what: str,
    python: str | None,
    timeout: float,
    output_dir: Path | None,
    live: terminal.LiveStatus,
) -> dict[str, Any]:
    from reprokit.host.pipeline import pipeline as line
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import parse_target

    request = Request(
        parse_target(what),
        python=shared.interpreter_option(python),
        deadline_s=timeout,
        minimizes=False,
        rungs="all",
    )
    captured = line.capture(request, output_dir, live.say, live.show, None, live.show_status)
    told = captured.to_json()
    return {
        k: told[k]
        for k in ("schema", "verdict", "signature", "ablation", "run_dir", "pack", "missing")
    }


def _of_pack(
    place: Path, python: str | None, yes: bool, output_dir: Path | None, live: terminal.LiveStatus
) -> dict[str, Any]:
    from reprokit.host.experiments import run_ablation as climber
    from reprokit.host.minimize import minimization
    from reprokit.host.pack import reopen
    from reprokit.host.system.progress import OperationStatus

    opened = reopen.open_pack(place)
    reopen.require_program(opened, "ablate")
    with consent.has_agreed(opened, "ablate", python, yes, output_dir, live) as (
        case,
        server,
        run_path,
    ):
        ladder = climber.AblationRunner(
            server, opened.program, opened.signature, minimization.limits_of(case), case.python
        )
        with contextlib.closing(ladder):
            found = climber.ablate_everything(
                ladder, case.seen, lambda name: live.show_status(OperationStatus(trying=name))
            )
    found = dataclasses.replace(found, responsible=opened.verdict.responsible)
    signature = {"id": opened.signature.id, "title": opened.signature.title}
    return {
        "schema": 1,
        "signature": signature,
        "ablation": found.to_json(),
        "run_dir": str(run_path),
    }


def _status(found: dict[str, Any] | None) -> int:
    if not found:
        return 3
    answers = {step["answer"] for step in found["steps"]}
    return 1 if answers & {"same", "other"} else 3 if "unresolved" in answers else 0


def _print(told: dict[str, Any]) -> None:
    found = told.get("ablation")
    out.RESULTS.line((told["signature"]["title"], "bold"))
    if not found:
        for row in told.get("missing") or ():
            if row["what"] in ("ablation", "minimization"):
                out.RESULTS.line(f"no ablation step was asked: {row['why']}")
        return
    rows = []
    for step in found["steps"]:
        instead = step["title"] if step["answer"] in ("other", "unresolved") else ""
        rows.append(
            (step["name"], _SAYS.get(step["answer"], ""), f"{step['cpu_s']:.1f}", instead[:80])
        )
    out.RESULTS.table(
        ("ablation step", "result", "CPU s", "what it did instead"), rows, right=("CPU s",)
    )
    out.RESULTS.line(found["sentence"])
    for name in ("pack", "run_dir"):
        if told.get(name):
            out.RESULTS.line(f"{name.removesuffix('_dir'):<10} {told[name]}")
