"""``reprokit minimize``: the smallest program that shows the same failure."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from reprokit.cli.shared import consent, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.options import PROOFS, SECONDS


@click.command(
    epilog=(
        "Exit codes: 0 a repro was found and proved, 1 none was found, 2 wrong usage, 130"
        " interrupted."
    )
)
@click.argument("what", metavar="PACK|RUN_DIR|TARGET")
@click.option(
    "--budget",
    type=SECONDS,
    default=300.0,
    show_default=True,
    help="Seconds for the minimization without its proof; the best so far is kept.",
)
@PROOFS
@click.option(
    "--resume", is_flag=True, help="Go on where an earlier reduction of this RUN_DIR ended."
)
@click.option(
    "--python",
    help=f"Interpreter for the probes; default: the one that failed, or for a pack {shared.USUAL}.",
)
@click.option("--yes", is_flag=True, help="Run what a pack holds without asking.")
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Where to work on a PACK or TARGET; default below reprokit-out.",
)
@click.option(
    "--ablate/--no-ablate",
    default=True,
    envvar="REPROKIT_ABLATE",
    show_envvar=True,
    help="Of a RUN_DIR or TARGET, ask with which backends it shows, too; default: yes.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
@click.pass_context
def minimize(
    ctx: click.Context,
    what: str,
    budget: float,
    proofs: int,
    resume: bool,
    python: str | None,
    yes: bool,
    output_dir: Path | None,
    ablate: bool,
    as_json: bool,
) -> None:
    """Find the smallest program that still shows the same failure, prove it, and pack it.

    What is minimized is a pack, a run directory of an earlier capture, or a target that is captured
    first. A candidate counts only when its signature is that of the failure. Ctrl-C keeps the best
    so far.

    \b
    Examples:
      reprokit minimize reprokit-out/train-20261121-101500-4242/run-001 --budget 900 --resume
      reprokit minimize reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit minimize model.py:make
    """
    from reprokit.core.shared.errors import BadInput

    place = Path(what)
    with terminal.LiveStatus(is_quiet=as_json) as live:
        if place.is_dir():
            if output_dir:
                raise BadInput(
                    "--output-dir is for a PACK or a TARGET; the pack of a RUN_DIR is left"
                    " beside it"
                )
            status, told = _of_run(place, budget, proofs, resume, python, ablate, live)
        elif resume:
            raise BadInput(
                f"--resume goes on with a run directory, and {what} is none; name the run-NNN of"
                " the first try"
            )
        elif place.is_file() and not what.endswith(".py"):
            status, told = _of_pack(place, budget, proofs, python, yes, output_dir, live, as_json)
        elif not place.exists() and (what.endswith(".gz") or ("/" in what and ":" not in what)):
            raise BadInput(f"there is no pack or run directory {what}")
        else:
            status, told = _of_target(what, budget, proofs, python, output_dir, ablate, live)
    if as_json:
        out.RESULTS.json(told)
    else:
        _print(told)
    ctx.exit(status)


def _of_run(
    place: Path,
    budget: float,
    proofs: int,
    resume: bool,
    python: str | None,
    ablate: bool,
    live: terminal.LiveStatus,
) -> tuple[int, dict[str, Any]]:
    from reprokit.host.pipeline import pipeline as line
    from reprokit.host.request import interpreter

    captured = line.repack(
        place,
        live.say,
        budget,
        resume,
        live.show_status,
        interpreter.check_interpreter(python) if python else None,
        ablate,
        proofs,
    )
    return _status(captured.minimized, captured.repro_path is not None), _told(captured.to_json())


def _of_target(
    what: str,
    budget: float,
    proofs: int,
    python: str | None,
    output_dir: Path | None,
    ablate: bool,
    live: terminal.LiveStatus,
) -> tuple[int, dict[str, Any]]:
    from reprokit.host.pipeline import pipeline as line
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import parse_target

    rungs = "few" if ablate else "none"
    request = Request(
        parse_target(what),
        python=shared.interpreter_option(python),
        budget_s=budget,
        proofs=proofs,
        rungs=rungs,
    )
    captured = line.capture(request, output_dir, live.say, live.show, None, live.show_status)
    return _status(captured.minimized, captured.repro_path is not None), _told(captured.to_json())


def _of_pack(
    place: Path,
    budget: float,
    proofs: int,
    python: str | None,
    yes: bool,
    output_dir: Path | None,
    live: terminal.LiveStatus,
    as_json: bool,
) -> tuple[int, dict[str, Any]]:
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.minimize import minimization as reducer
    from reprokit.host.pack import reopen
    from reprokit.host.run import run_directory
    from reprokit.host.system import interrupts

    opened = reopen.open_pack(place)
    if why := reducer.why_not(opened.verdict):
        raise BadInput(f"{place} cannot be minimized: {why}")
    checked = shared.interpreter_option(python)
    consent.require_consent(place, yes)
    with interrupts.deferred():
        run = run_directory.create_run(output_dir, f"minimize-{opened.verdict.kind}")
        try:
            case = dataclasses.replace(reopen.case_of_pack(opened, run, checked), proofs=proofs)
            with interrupts.allowed():
                consent.ask_person(place, reopen.what_would_run(case), checked, yes, live)
            with reducer.server_of(case) as server:
                found = reducer.minimize_case(
                    case, server, budget, False, live.show_status, live.say
                )
            made = reopen.repack(opened, found, run) if found.is_proved else None
        finally:
            run.release()
    best = str(run.path / reducer.FOLDER / "best.py")
    told = {
        "schema": 1,
        "signature": {"id": opened.signature.id, "title": opened.signature.title},
        "run_dir": str(run.path),
        "pack": str(made) if made else None,
        "repro": best if found.is_proved else None,
        "candidate": best if found.text and not found.is_proved else None,
        "unproven": None if found.is_proved else found.why,
        "minimized": reopen.about_minimized(found),
    }
    return _status(found, found.is_proved), told


def _status(found: Any, is_proved: bool) -> int:
    if found is not None and found.is_interrupted:
        return 130
    return 0 if is_proved else 1


def _told(captured: dict[str, Any]) -> dict[str, Any]:
    return {
        k: captured[k]
        for k in (
            "schema",
            "signature",
            "run_dir",
            "pack",
            "repro",
            "candidate",
            "unproven",
            "minimized",
            "ablation",
            "traits",
            "missing",
        )
    }


def _print(told: dict[str, Any]) -> None:
    found = told.get("minimized")
    title = (told.get("signature") or {}).get("title")
    out.RESULTS.line((str(title), "bold"))
    if not found or not found.get("lines"):
        notes = [m["why"] for m in told.get("missing") or () if m.get("what") == "minimization"]
        for note in (found or {}).get("notes") or notes or ["nothing was found"]:
            out.RESULTS.line(f"no smaller program: {note}")
    else:
        out.RESULTS.line(str(found.get("says")))
        for note in found.get("notes") or ():
            out.RESULTS.line(note)
        out.RESULTS.line(
            f"{found['probes']} probes, {found['cpu_s']:.0f} CPU-seconds; {found['spent']}"
        )
        if told.get("repro"):
            text = Path(told["repro"]).read_text(encoding="utf-8")
            if text.count("\n") <= 60:
                out.RESULTS.line()
                out.RESULTS.line(text)
    if told.get("unproven"):
        out.RESULTS.line(f"no repro   nothing proves one: {told['unproven']}")
    for name in ("repro", "candidate", "pack", "run_dir"):
        if told.get(name):
            out.RESULTS.line(f"{name.removesuffix('_dir'):<10} {told[name]}")
