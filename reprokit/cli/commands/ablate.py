"""``reprokit ablate``: find the backends, modes and settings with which a target fails."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from reprokit.cli.shared import consent, out, terminal
from reprokit.cli.shared import options as shared

if TYPE_CHECKING:
    from reprokit.cli.documents.study_documents import AblateDocument, AblationKeys
    from reprokit.host.request.run_request import Request

_SAYS = {
    "same": "the same failure",
    "other": "a different failure",
    "passes": "passes",
    "unresolved": "no answer",
}


@shared.target_command(
    epilog=(
        "Exit codes: 0 no step fails, 1 a step fails, 2 wrong usage, 3 unknown, 130 interrupted."
    )
)
@shared.PACK_OR_COMMAND
@click.pass_context
def ablate(
    ctx: click.Context,
    pack_or_target: str | None,
    python: str | None,
    timeout: float,
    yes: bool,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Compile a program in other ways, and report where the failure begins and what avoids it.

    The ablation steps are the program's own backend, none of its own passes, backends from eager to
    inductor, modes, dynamic, fullgraph, caches, threads and fusion. For the first backend that
    fails, a search finds the pass or lowering that causes the failure. A target is captured first,
    and a pack is written.

    A command after -- is run again for each step. If it runs vLLM, SGLang or transformers, the
    steps include the switches that their guides name, such as --enforce-eager.

    \b
    Examples:
      reprokit ablate model.py:make
      reprokit ablate reprokit-model-make-wrong-result-1f2e3d4c5b6a.tar.gz
      reprokit ablate -- vllm serve facebook/opt-125m
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.request.run_request import Request
    from reprokit.host.request.target import parse_command, parse_target

    with terminal.LiveStatus(is_quiet=as_json) as live:
        command: tuple[str, ...] | None = ctx.meta.get("command")
        if (pack_or_target is None) == (command is None):
            count = "no" if command is None else "more than one"
            raise BadInput(f"{count} target was given; name a pack, a target, or -- COMMAND")
        if pack_or_target is None:
            target = parse_command(command or ())
            request = Request(target, deadline_s=timeout, compares=False)
            document = _ablate_target(request, output_dir, live)
        elif shared.is_pack(pack_or_target):
            document = _ablate_pack(Path(pack_or_target), python, yes, output_dir, live)
        else:
            request = Request(
                parse_target(pack_or_target),
                python=shared.interpreter_option(python),
                deadline_s=timeout,
            )
            document = _ablate_target(request, output_dir, live)
    if as_json:
        out.RESULTS.print_json(document)
    else:
        _print(document)
    ctx.exit(_status(document.get("ablation")))


def _ablate_target(
    request: Request, output_dir: Path | None, live: terminal.LiveStatus
) -> AblateDocument:
    from reprokit.host.pipeline import pipeline

    captured = pipeline.capture_target(
        dataclasses.replace(request, minimizes=False, ablation_steps="all"),
        output_dir,
        live.show_message,
        live.show_progress,
        None,
        live.show_status,
    )
    from reprokit.cli.documents.study_documents import AblateDocument

    document = captured.to_json()
    return cast("AblateDocument", {k: document[k] for k in AblateDocument.__annotations__})


def _ablate_pack(
    path: Path, python: str | None, yes: bool, output_dir: Path | None, live: terminal.LiveStatus
) -> AblateDocument:
    from reprokit.cli.documents.study_documents import signature_keys
    from reprokit.host.experiments import run_ablation
    from reprokit.host.minimize import cases
    from reprokit.host.pack import reopen

    opened = reopen.open_pack(path)
    reopen.require_program(opened, "ablate")
    with consent.open_consented(opened, "ablate", python, yes, output_dir, live) as (
        case,
        server,
        run_path,
    ):
        runner = run_ablation.AblationRunner(
            server,
            opened.program,
            opened.signature,
            cases.probe_limits_of(case),
            case.python,
        )
        with contextlib.closing(runner):
            ablation = run_ablation.ablate_everything(runner, case.seen, live.show_status)
    ablation = dataclasses.replace(ablation, responsible=opened.verdict.responsible)
    return {
        "schema": 1,
        "signature": signature_keys(opened.signature),
        "ablation": cast("AblationKeys", ablation.to_json()),
        "run_dir": str(run_path),
    }


def _status(ablation: AblationKeys | None) -> int:
    if not ablation:
        return 3
    answers = {step["answer"] for step in ablation["steps"]}
    return 1 if answers & {"same", "other"} else 3 if "unresolved" in answers else 0


def _print(document: AblateDocument) -> None:
    ablation = document.get("ablation")
    out.RESULTS.print_line((document["signature"]["title"], "bold"))
    if not ablation:
        for row in document.get("missing") or ():
            if row["what"] in ("ablation", "minimization"):
                out.RESULTS.print_line(f"no ablation step was run: {row['why']}")
        return
    rows = []
    for step in ablation["steps"]:
        instead = step["title"] if step["answer"] in ("other", "unresolved") else ""
        rows.append((step["name"], _SAYS.get(step["answer"], ""), f"{step['cpu_s']:.1f}", instead))
    out.RESULTS.print_table(
        ("ablation step", "result", "CPU s", "signature"), rows, right=("CPU s",)
    )
    out.RESULTS.print_line(ablation["sentence"])
    if document.get("pack"):
        out.RESULTS.print_line(f"pack       {document['pack']}")
    if document.get("run_dir"):
        out.RESULTS.print_line(f"run        {document['run_dir']}")
