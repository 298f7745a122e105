"""``reprokit bisect``: in which torch did a failure start, or stop?"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import consent, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.options import SECONDS
from reprokit.core.shared.errors import BadInput

if TYPE_CHECKING:
    from reprokit.host.bisect.search import BisectRequest, BisectResult, BisectStep

EXIT_CODES = {"found": 0, "wrong ends": 1, "cannot tell": 3}
GIT_CODES = {"good": 0, "bad": 1, "skip": 125}
NOT_WITH_GIT = (
    "good",
    "bad",
    "interpreters",
    "versions",
    "installer",
    "index_url",
    "find_links",
    "no_index",
    "packages",
    "cache",
    "timeout",
    "output_dir",
)
"""Parameters of a search of our own: with --git, git searches and builds."""


@click.command(
    epilog=(
        "Exit codes: 0 a range was found, 1 the ends are not as told, 2 wrong usage, 3 cannot tell,"
        " 130 interrupted. With --git: 0 good, 1 bad, 125 skip, 128 wrong usage, which stops git."
    )
)
@click.argument("pack", type=click.Path(path_type=Path))
@click.option(
    "--good",
    metavar="VERSION|PATH",
    help="A torch without the failure, or an interpreter that has it.",
)
@click.option(
    "--bad",
    metavar="VERSION|PATH",
    help="A torch with the failure; older than --good: when was it fixed?",
)
@click.option(
    "--interpreter",
    "interpreters",
    multiple=True,
    metavar="PATH",
    help="Ask this interpreter's torch; give it several times for several.",
)
@click.option(
    "--versions",
    metavar="V,V,V",
    help=(
        "Versions to build and ask; default: the package index's releases between the ends, or the"
        " interpreters alone."
    ),
)
@click.option(
    "--git",
    "is_git",
    is_flag=True,
    help="Ask one interpreter and answer with git bisect run's exit codes.",
)
@click.option(
    "--python",
    help="Interpreter that environments stand on, with --git the one to ask; default: our own.",
)
@click.option(
    "--installer",
    type=click.Choice(["auto", "uv", "pip"]),
    default="auto",
    show_default=True,
    help="What builds environments; auto: uv where there is one.",
)
@click.option(
    "--index-url",
    default="",
    metavar="URL",
    help="Package index, such as PyTorch's for nightly builds.",
)
@click.option(
    "--find-links",
    multiple=True,
    metavar="PATH|URL",
    help="Look for wheels there too; may be repeated.",
)
@click.option("--no-index", is_flag=True, help="Take packages from --find-links alone.")
@click.option(
    "--with",
    "packages",
    multiple=True,
    metavar="PKG",
    help="Install this too, such as numpy; may be repeated.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    help="Where environments are kept; default: the user's cache.",
)
@click.option(
    "--timeout",
    type=SECONDS,
    default=1800.0,
    show_default=True,
    help="Deadline in seconds of one installation.",
)
@click.option(
    "-n",
    "--times",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many runs a version.",
)
@click.option(
    "--stall",
    type=SECONDS,
    default=60.0,
    show_default=True,
    help="No progress for so many seconds is a hang.",
)
@click.option("--yes", is_flag=True, help="Run what the pack holds without asking.")
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help=(
        "Where answers are kept: what was asked there is not asked again; default below"
        " reprokit-out."
    ),
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
@click.pass_context
def bisect(
    ctx: click.Context,
    /,
    pack: Path,
    good: str | None,
    bad: str | None,
    interpreters: tuple[str, ...],
    versions: str | None,
    is_git: bool,
    python: str | None,
    times: int,
    stall: float,
    yes: bool,
    output_dir: Path | None,
    as_json: bool,
    **building: Any,
) -> None:
    """Find the torch in which the failure of PACK started, or was fixed.

    The pack's repro is run with one version after the other: the same failure is bad, none is good,
    and a version that cannot be installed, fails otherwise or gives no answer is stepped around.

    \b
    Examples:
      reprokit bisect PACK --good 2.9.1 --bad 2.13.0 --yes
      reprokit bisect PACK --good v29/bin/python --bad v213/bin/python --interpreter v212/bin/python
      git bisect run reprokit bisect PACK --git --python build/bin/python --yes
    """
    from reprokit.host.bisect import search as asker
    from reprokit.host.bisect.torch_environments import InstallOptions
    from reprokit.host.pack import reopen
    from reprokit.host.system import interrupts

    options = InstallOptions(python=python, timeout_s=building.pop("timeout"), **building)
    if is_git:
        _refuse(ctx)
    elif good is None or bad is None:
        raise BadInput(
            "name both ends of the range with --good and --bad, or ask one question with --git"
        )
    opened = reopen.open_pack(pack)
    asker.check_pack(opened)
    consent.require_consent(pack, yes)
    asking = asker.BisectRequest(opened, options, times, stall, Path())
    with interrupts.deferred(), terminal.LiveStatus(is_quiet=as_json) as live:
        if is_git:
            step = _ask_one(pack, asking, yes, live)
        else:
            found = _search(
                pack, asking, (good or "", bad or ""), versions, interpreters, output_dir, yes, live
            )
    if is_git:
        told, status = {"schema": 1, **dataclasses.asdict(step)}, GIT_CODES[step.answer]
    else:
        told = to_json(found, (good or "", bad or ""))
        status = 130 if found.is_interrupted else EXIT_CODES[found.outcome.status]
    if as_json:
        out.RESULTS.json(told)
    elif is_git:
        out.RESULTS.line(f"{step.answer}: {step.title or 'it passes'}")
    else:
        print_bisection(found)
    ctx.exit(status)


def _refuse(ctx: click.Context) -> None:
    given = [
        param.opts[0]
        for param in ctx.command.params
        if param.name in NOT_WITH_GIT
        and ctx.get_parameter_source(str(param.name)) == click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise BadInput(
            f"{' and '.join(given)} cannot be used with --git, which asks the one interpreter of"
            " --python"
        )


def _ask_one(pack: Path, asking: BisectRequest, yes: bool, live: terminal.LiveStatus) -> BisectStep:
    """One question, as ``git bisect run`` has it."""
    from reprokit.host.bisect import search as asker
    from reprokit.host.bisect.torch_versions import TorchVersion
    from reprokit.host.system import interrupts

    try:
        python = shared.interpreter_option(asking.options.python)
    except BadInput as problem:  # a commit whose build is broken is neither good nor bad
        return asker.BisectStep("", "skip", str(problem))
    with interrupts.allowed():
        consent.ask_person(pack, asking.opened.program, python, yes, live)
    with tempfile.TemporaryDirectory(prefix="reprokit-bisect-") as folder:
        return asker.ask_version(TorchVersion("", python), asking, live.say, Path(folder))


def _search(
    pack: Path,
    asking: BisectRequest,
    ends: tuple[str, str],
    versions: str | None,
    pythons: tuple[str, ...],
    output_dir: Path | None,
    yes: bool,
    live: terminal.LiveStatus,
) -> BisectResult:
    """Find out what can be asked, agree to it, and ask."""
    from reprokit.host.bisect import search as asker
    from reprokit.host.bisect import torch_versions
    from reprokit.host.run import run_directory
    from reprokit.host.system import interrupts

    listed = [v.strip() for v in (versions or "").split(",") if v.strip()]
    plan = torch_versions.plan_bisection(*ends, listed, pythons, asking.options, live.say)
    with interrupts.allowed():
        consent.ask_person(pack, asking.opened.program, f"torch {', '.join(plan.names)}", yes, live)
    run = run_directory.create_run(output_dir, f"bisect-{asking.opened.verdict.kind}")
    try:
        live.say(f"{len(plan.names)} versions, answers in {run.output / asker.ANSWERS}")
        return asker.bisect_torch(plan, dataclasses.replace(asking, folder=run.path), live.say)
    finally:
        run.release()


def to_json(found: BisectResult, ends: tuple[str, str]) -> dict[str, Any]:
    """The object that ``--json`` prints; later versions only add keys."""
    names, outcome = found.plan.names, found.outcome
    told = (
        {"good": names[outcome.good], "bad": names[outcome.bad]}
        if outcome.status == "found"
        else None
    )
    return {
        "schema": 1,
        "good": ends[0],
        "bad": ends[1],
        "versions": names,
        "status": outcome.status,
        "range": told,
        "skipped": [names[place] for place in outcome.skipped],
        "is_fix": found.plan.is_backwards,
        "is_interrupted": found.is_interrupted,
        "says": found.says,
        "steps": [dataclasses.asdict(step) for step in found.steps],
    }


def print_bisection(found: BisectResult) -> None:
    """Print the steps in the order in which they were asked, then the range."""
    colours = {"good": "green", "bad": "red", "skip": "yellow"}
    rows: list[tuple[out.Part, ...]] = []
    for step in found.steps:
        seconds = "known" if step.is_known else f"{step.seconds:.1f}"
        version, python, title = step.version or "?", step.python, step.title
        if out.RESULTS.isatty():
            rows.append((version, (step.answer, colours[step.answer]), seconds, python, title))
        else:
            out.RESULTS.line(
                f"{version:<16} {step.answer:<5} {seconds:>8}  {python}  {title}".rstrip()
            )
    if rows:
        out.RESULTS.table(("torch", "verdict", "seconds", "python", "title"), rows)
    out.RESULTS.line(found.says)
