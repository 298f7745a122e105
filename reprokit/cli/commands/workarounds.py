"""``reprokit workarounds``: how to live with a failure, and whether compile is worth it at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import consent, out, terminal
from reprokit.cli.shared import options as shared

_SAYS = {
    "passes": "avoids it",
    "same": "the same failure",
    "other": "another failure",
    "unresolved": "no answer",
    "": "does not apply",
}


@click.command(
    epilog=(
        "Exit codes: 0 nothing fails or something avoids it, 1 nothing but eager does, 2 wrong"
        " usage, 3 unknown, 130 interrupted."
    )
)
@shared.ASKING
@click.pass_context
def workarounds(
    ctx: click.Context,
    what: str,
    python: str | None,
    timeout: float,
    yes: bool,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Try every remedy and say which avoids the failure, at what cost; of a healthy target, whether
    compile pays.

    Remedies: eager, layer by layer, one region, half of the layers, other modes, dynamic on or off,
    leaving out the guilty pass or lowering, a graph break at the guilty operator, a higher
    recompile limit. What a remedy gains is measured beside eager.

    \b
    Examples:
      reprokit workarounds model.py:make
      reprokit workarounds reprokit-model-make-exception-1f2e3d4c5b6a.tar.gz
      reprokit workarounds llama-tiny
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
    ctx.exit(_status(told))


def _of_target(
    what: str,
    python: str | None,
    timeout: float,
    output_dir: Path | None,
    live: terminal.LiveStatus,
) -> dict[str, Any]:
    from reprokit.core.experiments import speedup
    from reprokit.core.shared.contract import events
    from reprokit.host.experiments.try_remedies import RemedyRunner
    from reprokit.host.minimize import minimization
    from reprokit.host.pipeline import pipeline as line
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import parse_target
    from reprokit.host.run import observation_reader
    from reprokit.host.system import interrupts
    from reprokit.host.system.progress import OperationStatus

    request = Request(
        parse_target(what),
        python=shared.interpreter_option(python),
        deadline_s=timeout,
        minimizes=False,
    )
    captured = line.capture(request, output_dir, live.say, live.show, None, live.show_status)
    journals = observation_reader.read_journals(captured.run_path)
    told: dict[str, Any] = {
        k: v
        for k, v in captured.to_json().items()
        if k in ("schema", "verdict", "signature", "run_dir", "pack")
    }
    why = "" if captured.verdict.kind == "ok" else minimization.why_not(captured.verdict)
    if journals.last(events.Weights).kind == "fake":
        why = "on fake weights nothing runs, so nothing can be measured"
    if why:
        return {**told, "tried": [], "advice": f"Nothing was tried: {why}.", "is_known": False}
    live.say(
        "trying remedies"
        if captured.verdict.kind != "ok"
        else "measuring eager and compiled in turns"
    )
    with interrupts.deferred():
        case = minimization.case_of(
            request,
            captured.verdict,
            captured.signature,
            captured.seen,
            journals,
            captured.run_path,
        )
        with minimization.server_of(case) as server, interrupts.allowed():
            tryer = RemedyRunner(
                server,
                request,
                captured.signature,
                minimization.limits_of(case),
                case.python,
                lambda name: live.show_status(OperationStatus(trying=name)),
            )
            asked = {**journals.last(events.TargetBuilt).compile, **request.compile}
            found = tryer.all(captured.verdict, captured.seen, asked)
    found.parameters = journals.last(events.TargetBuilt).parameters
    guess = speedup.guess_gain(found.parameters) if found.parameters else ""
    return {**told, **_told(found), "parameters": found.parameters, "guess": guess}


def _of_pack(
    place: Path, python: str | None, yes: bool, output_dir: Path | None, live: terminal.LiveStatus
) -> dict[str, Any]:
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.experiments.try_remedies import RemedyRunner
    from reprokit.host.minimize import minimization
    from reprokit.host.pack import reopen
    from reprokit.host.system.progress import OperationStatus

    opened = reopen.open_pack(place)
    if not opened.program.strip() or opened.verdict.kind == "ok":
        raise BadInput(f"{place} holds no failing program, so there is nothing to live with")
    with consent.has_agreed(opened, "workarounds", python, yes, output_dir, live) as (
        case,
        server,
        run_path,
    ):
        tryer = RemedyRunner(
            server,
            opened.program,
            opened.signature,
            minimization.limits_of(case),
            case.python,
            lambda name: live.show_status(OperationStatus(trying=name)),
        )
        found = tryer.all(opened.verdict, case.seen, opened.compile)
    signature = {"id": opened.signature.id, "title": opened.signature.title}
    return {"schema": 1, "signature": signature, "run_dir": str(run_path), **_told(found)}


def _asked(value: Any) -> dict[str, Any]:
    """Arguments of torch.compile as a journal or a pack tells them."""
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else {}


def _told(found: Any) -> dict[str, Any]:
    from reprokit.core.experiments.remedies import NEEDS_GPU

    gain = found.as_it_is
    return {
        "tried": [t.to_json() for t in found.tried],
        "needs_gpu": list(NEEDS_GPU),
        "gain": (
            {"ratio": gain.ratio, "low": gain.low, "high": gain.high, "advice": gain.advice}
            if gain
            else None
        ),
        "compile_s": found.compile_s,
        "advice": found.advice,
        "is_known": bool(found.tried) or gain is not None,
    }


def _status(told: dict[str, Any]) -> int:
    if not told.get("is_known"):
        return 3
    ways = [t for t in told["tried"] if t["answer"] == "passes" and t["name"] != "eager"]
    return 0 if ways or told.get("gain") else 1


def _print(told: dict[str, Any]) -> None:
    out.RESULTS.line((told["signature"]["title"], "bold"))
    if told["tried"]:
        rows = []
        for row in told["tried"]:
            seconds = f"{row['compile_cpu_s']:.1f}" if row["compile_cpu_s"] else ""
            speed = (
                f"{row['gain']['ratio']:.2f} ({row['gain']['low']:.2f} to"
                f" {row['gain']['high']:.2f})"
                if row["gain"]
                else ""
            )
            code = row["code"] if row["answer"] == "passes" else row["why"][:70]
            rows.append((row["name"], _SAYS.get(row["answer"], ""), seconds, speed, code))
        titles = ("remedy", "result", "CPU s", "speed beside eager", "write")
        out.RESULTS.table(titles, rows, right=("CPU s",))
        out.RESULTS.line(f"not tried without a GPU: {', '.join(told['needs_gpu'])}")
    if told.get("guess"):
        out.RESULTS.line(
            f"a guess by size alone, {told['parameters']:,} parameters: {told['guess']}"
        )
    out.RESULTS.line(told["advice"])
