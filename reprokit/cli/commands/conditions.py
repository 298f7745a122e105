"""``reprokit conditions``: find what a failure needs of a machine, a process and its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from reprokit.cli.shared import consent, option_types, out, replayed_places, terminal
from reprokit.cli.shared import options as shared

if TYPE_CHECKING:
    from reprokit.cli.documents.study_documents import ConditionsDocument

MAX_SHOWN_CHANGES = 2
_SAYS = {
    "same": "fails in the same way",
    "passes": "passes",
    "other": "fails in a different way",
    "unresolved": "no answer",
}


@shared.command(
    epilog=(
        "Exit codes: 0 the conditions were found, 2 wrong usage, 3 the failure does not occur here,"
        " 130 interrupted."
    )
)
@click.argument("pack", type=option_types.PackPath())
@shared.option(
    "--python", type=option_types.PLACE, help=f"Interpreter; default: {shared.DEFAULT_PYTHON}."
)
@shared.option(
    "--budget-cpu",
    type=click.FloatRange(min=1.0),
    metavar="SECONDS",
    help="CPU seconds that the search may take; default: those of the reduction, at least 60.",
)
@replayed_places.PLACES
@shared.YES
@shared.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Folder for the output; default: a new folder in reprokit-out.",
)
@shared.JSON
@click.pass_context
def conditions(
    ctx: click.Context,
    pack: Path,
    python: str | None,
    budget_cpu: float | None,
    places: tuple[str, ...],
    yes: bool,
    output_dir: Path | None,
    as_json: bool,
) -> None:
    """Report what the failure of PACK needs, and what it does not depend on.

    The program of the pack runs with different vector instructions, threads, CPUs, seeds, default
    dtypes, caches, shapes, C++ compilers and contents of memory. reprokit changes all of them at
    once, finds the smallest set that must not change, and changes each value alone. With --in, the
    program also runs in other places, such as with a different version of Python or torch.

    \b
    Examples:
      reprokit conditions reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit conditions PACK --in gpu=h100 --in python=~/nightly/bin/python --yes
    """
    with terminal.LiveStatus(is_quiet=as_json) as live:
        document = _find(pack, python, budget_cpu, places, yes, output_dir, live)
    if as_json:
        out.RESULTS.print_json(document)
    else:
        _print(document)
    ctx.exit(0 if document["occurs"] else 3)


def _find(
    path: Path,
    python: str | None,
    budget_cpu: float | None,
    places: tuple[str, ...],
    yes: bool,
    output_dir: Path | None,
    live: terminal.LiveStatus,
) -> ConditionsDocument:
    from reprokit.cli.documents.study_documents import signature_keys
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.environment import machine_facts
    from reprokit.host.experiments import find_conditions
    from reprokit.host.minimize import cases
    from reprokit.host.pack import reopen
    from reprokit.host.request.run_request import Request

    named = replayed_places.check_places(places)
    opened = reopen.open_pack(path)
    reopen.require_program(opened, "conditions")
    chosen = replayed_places.with_interpreters(named, python, opened)
    with consent.open_consented(opened, "conditions", python, yes, output_dir, live) as (
        case,
        server,
        run_path,
    ):
        limits = cases.probe_limits_of(case).relaxed()
        if limits.is_slow or limits.stage or limits.gpu is not None:
            raise BadInput(
                f"{path} is about a slow compile, a cache or a simulated GPU, whose conditions"
                " cannot be changed"
            )
        live.show_message("collecting the environment")
        facts = machine_facts.collect_facts(case.python, run_path, is_fresh=False).facts
        machine = find_conditions.machine_of(facts, is_thorough=True)
        if machine is None:
            raise BadInput(f"{case.python} does not say which CPU this machine has")
        program = find_conditions.Program(
            opened.program, case.python, opened.signature, limits, opened.failure_rate
        )
        finder = find_conditions.ConditionFinder(
            program,
            machine,
            server,
            run_path / "conditions",
            budget_cpu or max(opened.reduction_cpu_s, find_conditions.MIN_COMMAND_CPU_S),
            live.show_status,
            is_thorough=True,
        )
        unchanged = finder.run_unchanged()
        occurs = unchanged.answer == "same"
        found = finder.find() if occurs else None
        replayed = replayed_places.replay_in_places(
            opened, chosen, 1, run_path / "places", Request.stall_s, live
        )
        if any(one.result.is_interrupted for one in replayed):
            raise KeyboardInterrupt
    document = {
        "schema": 1,
        "signature": signature_keys(opened.signature),
        "run_dir": str(run_path),
        "occurs": occurs,
        "unmet": unchanged.unmet,
        "cpu_s": round(finder.cpu_s, 1),
        "conditions": found.to_json() if found is not None else None,
        "places": [one.to_json() for one in replayed],
    }
    return cast("ConditionsDocument", document)


def _changed(changes: list[str]) -> str:
    """Return the changes of one run; of many changes, only the names."""
    if len(changes) <= MAX_SHOWN_CHANGES:
        return "; ".join(changes)
    return f"{len(changes)} at once: {', '.join(c.partition(':')[0] for c in changes)}"


def _print(document: ConditionsDocument) -> None:
    out.RESULTS.print_line((document["signature"]["title"], "bold"))
    found = document["conditions"]
    rows = [(row["place"], _SAYS[row["answer"]]) for row in document["places"]]
    if found is None:
        lacks = f": it needs {document['unmet']}" if document["unmet"] else ""
        out.RESULTS.print_line(f"cannot tell: the failure does not occur here{lacks}")
    else:
        changed = [(_changed(row["changed"]), _SAYS[row["answer"]]) for row in found["tried"]]
        rows = [*changed, *rows]
    if rows:
        out.RESULTS.print_table(("changed, or place", "result"), rows)
    if found is not None:
        out.RESULTS.print_line((found["sentence"], "bold"))
    if found is not None and found["lines"]:
        out.RESULTS.print_line("A repro sets or checks this after its imports:")
        out.RESULTS.print_line("\n".join(found["lines"]))
