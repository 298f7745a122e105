"""``reprokit workarounds``: find what avoids a failure, and whether compile is worth it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from reprokit.cli.shared import consent, out, terminal
from reprokit.cli.shared import options as shared

if TYPE_CHECKING:
    from reprokit.cli.documents.study_documents import WorkaroundsDocument
    from reprokit.host.experiments.try_remedies import Workarounds

_SAYS = {
    "passes": "avoids it",
    "same": "the same failure",
    "other": "a different failure",
    "unresolved": "no answer",
    "": "does not apply",
}


@shared.command(
    epilog=(
        "Exit codes: 0 nothing fails or a remedy avoids it, 1 only eager avoids it, 2 wrong usage,"
        " 3 unknown, 130 interrupted."
    )
)
@shared.PACK_OR_TARGET
@click.pass_context
def workarounds(
    ctx: click.Context,
    pack_or_target: str,
    python: str | None,
    timeout: float,
    yes: bool,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Try each remedy, and report which avoids the failure and at what cost.

    Remedies are eager, compiling layer by layer, one region, half of the layers, other modes,
    dynamic on or off, the compile without the pass or lowering that fails, a graph break at the
    operator that fails, and a higher recompile limit. The speed of a remedy is compared with eager.
    For a target that does not fail, the command reports whether compile is worth it.

    \b
    Examples:
      reprokit workarounds model.py:make
      reprokit workarounds reprokit-model-make-exception-1f2e3d4c5b6a.tar.gz
      reprokit workarounds llama-tiny
    """
    with terminal.LiveStatus(is_quiet=as_json) as live:
        if shared.is_pack(pack_or_target):
            document = _try_on_pack(Path(pack_or_target), python, yes, output_dir, live)
        else:
            document = _try_on_target(pack_or_target, python, timeout, output_dir, live)
    if as_json:
        out.RESULTS.print_json(document)
    else:
        _print(document)
    ctx.exit(_status(document))


def _try_on_target(
    pack_or_target: str,
    python: str | None,
    timeout: float,
    output_dir: Path | None,
    live: terminal.LiveStatus,
) -> WorkaroundsDocument:
    from reprokit.core.experiments import speedup
    from reprokit.core.shared.contract import events
    from reprokit.host.experiments.try_remedies import RemedyRunner
    from reprokit.host.minimize import cases
    from reprokit.host.pipeline import pipeline
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import parse_target
    from reprokit.host.run import observation_reader
    from reprokit.host.system import interrupts

    request = Request(
        parse_target(pack_or_target),
        python=shared.interpreter_option(python),
        deadline_s=timeout,
        minimizes=False,
    )
    captured = pipeline.capture_target(
        request, output_dir, live.show_message, live.show_progress, None, live.show_status
    )
    journals = observation_reader.read_journals(captured.run_path)
    captured_document = captured.to_json()
    keys = ("schema", "verdict", "signature", "run_dir", "pack")
    document = cast("WorkaroundsDocument", {k: captured_document[k] for k in keys})
    why = "" if captured.verdict.kind == "ok" else cases.why_not_minimizable(captured.verdict)
    if journals.last_event_of_type(events.Weights).kind == "fake":
        why = "nothing runs on fake weights, so nothing can be measured"
    if why:
        return {**document, "tried": [], "advice": f"Nothing was tried: {why}.", "is_known": False}
    live.show_message(
        "trying remedies"
        if captured.verdict.kind != "ok"
        else "measuring eager and compiled in turns"
    )
    with interrupts.deferred():
        case = cases.case_of_run(
            request,
            captured.verdict,
            captured.signature,
            captured.seen,
            journals,
            captured.run_path,
        )
        with cases.create_probe_server(case) as server, interrupts.allowed():
            runner = RemedyRunner(
                server,
                request,
                captured.signature,
                cases.probe_limits_of(case),
                case.python,
                live.show_status,
            )
            arguments = {
                **journals.last_event_of_type(events.TargetBuilt).compile,
                **request.compile,
            }
            outcome = runner.try_all_remedies(captured.verdict, captured.seen, arguments)
    outcome.parameters = journals.last_event_of_type(events.TargetBuilt).parameters
    guess = speedup.guess_gain(outcome.parameters) if outcome.parameters else ""
    more = {"parameters": outcome.parameters, "guess": guess}
    return cast("WorkaroundsDocument", {**document, **_remedies_document(outcome), **more})


def _try_on_pack(
    path: Path, python: str | None, yes: bool, output_dir: Path | None, live: terminal.LiveStatus
) -> WorkaroundsDocument:
    from reprokit.cli.documents.study_documents import signature_keys
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.experiments.try_remedies import RemedyRunner
    from reprokit.host.minimize import cases
    from reprokit.host.pack import reopen

    opened = reopen.open_pack(path)
    if not opened.program.strip() or opened.verdict.kind == "ok":
        raise BadInput(f"{path} has no failing program, so there is nothing to avoid")
    with consent.open_consented(opened, "workarounds", python, yes, output_dir, live) as (
        case,
        server,
        run_path,
    ):
        runner = RemedyRunner(
            server,
            opened.program,
            opened.signature,
            cases.probe_limits_of(case),
            case.python,
            live.show_status,
        )
        outcome = runner.try_all_remedies(opened.verdict, case.seen, opened.compile)
    document = {
        "schema": 1,
        "signature": signature_keys(opened.signature),
        "run_dir": str(run_path),
        **_remedies_document(outcome),
    }
    return cast("WorkaroundsDocument", document)


def _remedies_document(outcome: Workarounds) -> dict[str, Any]:
    from reprokit.core.experiments.remedies.remedy_table import NEEDS_GPU

    gain = outcome.as_it_is
    return {
        "tried": [t.to_json() for t in outcome.tried],
        "needs_gpu": list(NEEDS_GPU),
        "gain": (
            {"ratio": gain.ratio, "low": gain.low, "high": gain.high, "advice": gain.advice}
            if gain
            else None
        ),
        "compile_s": outcome.compile_s,
        "advice": outcome.advice,
        "is_known": bool(outcome.tried) or gain is not None,
    }


def _status(document: WorkaroundsDocument) -> int:
    if not document.get("is_known"):
        return 3
    ways = [t for t in document["tried"] if t["answer"] == "passes" and t["name"] != "eager"]
    return 0 if ways or document.get("gain") else 1


def _print(document: WorkaroundsDocument) -> None:
    out.RESULTS.print_line((document["signature"]["title"], "bold"))
    if document["tried"]:
        rows = []
        for row in document["tried"]:
            seconds = f"{row['compile_cpu_s']:.1f}" if row["compile_cpu_s"] else ""
            speed = (
                f"{row['gain']['ratio']:.2f} ({row['gain']['low']:.2f} to"
                f" {row['gain']['high']:.2f})"
                if row["gain"]
                else ""
            )
            code = row["code"] if row["answer"] == "passes" else row["why"]
            rows.append((row["name"], _SAYS.get(row["answer"], ""), seconds, speed, code))
        titles = ("remedy", "result", "CPU s", "speed against eager", "code")
        out.RESULTS.print_table(titles, rows, right=("CPU s",))
        out.RESULTS.print_line(f"not tried without a GPU: {', '.join(document['needs_gpu'])}")
    if document.get("guess"):
        out.RESULTS.print_line(
            f"an estimate from the size, {document['parameters']:,} parameters: {document['guess']}"
        )
    out.RESULTS.print_line(document["advice"])
