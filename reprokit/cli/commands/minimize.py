"""``reprokit minimize``: find the smallest program with the same failure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from reprokit.cli.shared import consent, option_types, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.command_classes import is_given
from reprokit.core.judge.stacks.location import plural

if TYPE_CHECKING:
    from reprokit.cli.documents.study_documents import MinimizedKeys, MinimizeDocument
    from reprokit.host.minimize.minimize_result import MinimizeResult


@shared.command(
    epilog=(
        "Exit codes: 0 a repro was found and proved, 1 none was found, 2 wrong usage, 130"
        " interrupted."
    )
)
@click.argument(
    "source", type=option_types.TargetType(takes_packs=True), metavar="PACK|RUN_DIR|TARGET"
)
@shared.option(
    "--budget",
    type=option_types.SECONDS,
    default="5m",
    show_default=True,
    help="Time for the minimization without its proof; the best result so far is kept. On a"
    " busy machine it is up to three times as long.",
)
@shared.PROOFS
@shared.CORES
@shared.option("--resume", is_flag=True, help="Continue an earlier minimization of this RUN_DIR.")
@shared.option(
    "--python",
    type=option_types.PLACE,
    help=(
        "Interpreter that runs the programs; default: the one that failed, or for a pack"
        f" {shared.DEFAULT_PYTHON}."
    ),
)
@shared.YES
@shared.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Folder for the output of a PACK or TARGET; default: a new folder in reprokit-out.",
)
@shared.option(
    "--ablate/--no-ablate",
    default=True,
    envvar="REPROKIT_ABLATE",
    help="Also find with which backends a RUN_DIR or TARGET fails; default: yes.",
)
@shared.JSON
@click.pass_context
def minimize(
    ctx: click.Context,
    source: str,
    budget: float,
    proofs: int,
    cores: int | None,
    resume: bool,
    python: str | None,
    yes: bool,
    output_dir: Path | None,
    ablate: bool,
    as_json: bool,
) -> None:
    """Find the smallest program with the same failure, prove it, and pack it.

    The argument is a pack, a run directory of an earlier capture, or a target, which is captured
    first. A smaller program counts only if its signature is that of the failure. Ctrl-C keeps the
    best result so far.

    \b
    Examples:
      reprokit minimize reprokit-out/train-20261121-101500-4242/run-001 --budget 900 --resume
      reprokit minimize reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit minimize model.py:make
    """
    from reprokit.core.shared.errors import BadInput

    path = Path(source)
    with terminal.LiveStatus(is_quiet=as_json) as live:
        if path.is_dir():
            if is_given(ctx, "output_dir"):
                raise BadInput(
                    "--output-dir is for a PACK or a TARGET; the pack of a RUN_DIR is written"
                    " beside it"
                )
            status, document = _minimize_run(
                path, budget, proofs, cores, resume, python, ablate, live
            )
        elif resume:
            raise BadInput(
                f"--resume continues with a run directory, and {source} is not one; name the"
                " run-NNN of the first try"
            )
        elif path.is_file() and not source.endswith(".py"):
            status, document = _minimize_pack(
                path, budget, proofs, cores, python, yes, output_dir, live, as_json
            )
        elif not path.exists() and (
            source.endswith(".gz") or ("/" in source and ":" not in source)
        ):
            raise BadInput(f"there is no pack or run directory {source}")
        else:
            status, document = _minimize_target(
                source, budget, proofs, cores, python, output_dir, ablate, live
            )
    if as_json:
        out.RESULTS.print_json(document)
    else:
        _print(document)
    ctx.exit(status)


def _minimize_run(
    path: Path,
    budget: float,
    proofs: int,
    cores: int | None,
    resume: bool,
    python: str | None,
    ablate: bool,
    live: terminal.LiveStatus,
) -> tuple[int, MinimizeDocument]:
    from reprokit.host.pipeline import pipeline
    from reprokit.host.request import interpreter

    captured = pipeline.repack_run(
        path,
        live.show_message,
        budget,
        resume,
        live.show_status,
        interpreter.check_interpreter(python) if python else None,
        ablate,
        proofs,
        cores or 0,
    )
    return _status(captured.minimized, captured.repro_path is not None), _select_keys(
        captured.to_json()
    )


def _minimize_target(
    source: str,
    budget: float,
    proofs: int,
    cores: int | None,
    python: str | None,
    output_dir: Path | None,
    ablate: bool,
    live: terminal.LiveStatus,
) -> tuple[int, MinimizeDocument]:
    from reprokit.host.pipeline import pipeline
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import parse_target

    ablation_steps = "few" if ablate else "none"
    request = Request(
        parse_target(source),
        python=shared.interpreter_option(python),
        budget_s=budget,
        proofs=proofs,
        cores=cores or 0,
        ablation_steps=ablation_steps,
    )
    captured = pipeline.capture_target(
        request, output_dir, live.show_message, live.show_progress, None, live.show_status
    )
    return _status(captured.minimized, captured.repro_path is not None), _select_keys(
        captured.to_json()
    )


def _minimize_pack(
    path: Path,
    budget: float,
    proofs: int,
    cores: int | None,
    python: str | None,
    yes: bool,
    output_dir: Path | None,
    live: terminal.LiveStatus,
    as_json: bool,
) -> tuple[int, MinimizeDocument]:
    from reprokit.cli.documents.study_documents import signature_keys
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.minimize import cases, minimization
    from reprokit.host.pack import reopen
    from reprokit.host.run import run_directory
    from reprokit.host.system import interrupts

    opened = reopen.open_pack_of_run(path)
    if why := cases.why_not_minimizable(opened.verdict):
        raise BadInput(f"{path} cannot be minimized: {why}")
    checked = shared.interpreter_option(python)
    consent.require_consent(path, yes)
    with interrupts.deferred():
        run = run_directory.create_run_directory(output_dir, f"minimize-{opened.verdict.kind}")
        try:
            case = dataclasses.replace(
                reopen.case_of_pack(opened, run, checked), proofs=proofs, cores=cores or 0
            )
            with interrupts.allowed():
                consent.ask_consent(path, reopen.programs_to_run(case), checked, yes, live)
            with cases.create_probe_server(case) as server:
                result = minimization.minimize_case(
                    case, server, budget, False, live.show_status, live.show_message
                )
            new_pack = reopen.write_smaller_pack(opened, result, run) if result.is_proved else None
        finally:
            run.release_lock()
    best = str(run.path / minimization.FOLDER / "best.py")
    document: MinimizeDocument = {
        "schema": 1,
        "signature": signature_keys(opened.signature),
        "run_dir": str(run.path),
        "pack": str(new_pack) if new_pack else None,
        "repro": best if result.is_proved else None,
        "candidate": best if result.text and not result.is_proved else None,
        "unproven": None if result.is_proved else result.why,
        "minimized": cast("MinimizedKeys", reopen.minimize_document(result)),
    }
    return _status(result, result.is_proved), document


def _status(result: MinimizeResult | None, is_proved: bool) -> int:
    if result is not None and result.is_interrupted:
        return 130
    return 0 if is_proved else 1


def _select_keys(captured: Mapping[str, object]) -> MinimizeDocument:
    from reprokit.cli.documents.study_documents import MinimizeDocument

    return cast("MinimizeDocument", {k: captured[k] for k in MinimizeDocument.__annotations__})


def _print(document: MinimizeDocument) -> None:
    result = document.get("minimized")
    out.RESULTS.print_line((document["signature"]["title"], "bold"))
    if not result or not result.get("lines"):
        notes = [m["why"] for m in document.get("missing") or () if m["what"] == "minimization"]
        for note in (result.get("notes") if result else []) or notes or ["nothing was found"]:
            out.RESULTS.print_line(f"no smaller program: {note}")
    else:
        out.RESULTS.print_line(str(result.get("says")))
        for note in (*result.get("depends_on", ()), *result.get("notes", ())):
            out.RESULTS.print_line(note)
        out.RESULTS.print_line(
            f"{plural(result['probes'], 'program')} tried, {result['cpu_s']:.0f} CPU-seconds;"
            f" {result['spent']}"
        )
        if repro := document.get("repro"):
            from reprokit.cli.shared import print_capture

            print_capture.print_repro(Path(repro))
    if document.get("unproven"):
        out.RESULTS.print_line(f"no repro   {document['unproven']}")
    paths = {
        "repro": document.get("repro"),
        "candidate": document.get("candidate"),
        "pack": document.get("pack"),
        "run": document.get("run_dir"),
    }
    for name, path in paths.items():
        if path:
            out.RESULTS.print_line(f"{name:<10} {path}")
