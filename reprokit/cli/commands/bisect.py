"""``reprokit bisect``: find the torch in which a failure started, or was fixed."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import consent, option_types, out, terminal
from reprokit.cli.shared import options as shared
from reprokit.cli.shared.command_classes import is_given
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
"""Parameters that --git does not accept, because git then searches and the user builds."""


@shared.command(
    epilog=(
        "Exit codes: 0 a range was found, 1 --good or --bad is wrong, 2 wrong usage, 3 unknown, 130"
        " interrupted. With --git: 0 good, 1 bad, 125 skip, 128 wrong usage, which stops git."
    )
)
@click.argument("pack", type=option_types.PackPath())
@shared.option(
    "--good",
    type=option_types.PLACE,
    section="Range",
    metavar="VERSION|PATH",
    help="A torch without the failure, or an interpreter that has it.",
)
@shared.option(
    "--bad",
    type=option_types.PLACE,
    section="Range",
    metavar="VERSION|PATH",
    help="A torch with the failure. If it is older than --good, reprokit searches for the fix.",
)
@shared.option(
    "--interpreter",
    "interpreters",
    type=option_types.PLACE,
    section="Range",
    multiple=True,
    metavar="PATH",
    help="Also run with the torch of this interpreter; may be repeated.",
)
@shared.option(
    "--versions",
    section="Range",
    metavar="V,V,V",
    help=(
        "Versions to install and run; default: the releases of the package index between the ends,"
        " or only the interpreters."
    ),
)
@shared.option(
    "--git",
    "is_git",
    section="Range",
    is_flag=True,
    help="Run with one interpreter, and exit with the codes of git bisect run.",
)
@shared.option(
    "--python",
    section="Range",
    type=option_types.PLACE,
    help="Base interpreter of environments, or the one that --git runs; default: reprokit's own.",
)
@shared.option(
    "--installer",
    section="Installation",
    is_rare=True,
    type=click.Choice(["auto", "uv", "pip"]),
    default="auto",
    show_default=True,
    help="What installs packages; auto: uv if it is installed, else pip.",
)
@shared.option(
    "--index-url",
    section="Installation",
    default="",
    metavar="URL",
    help="Package index, such as PyTorch's for nightly builds.",
)
@shared.option(
    "--find-links",
    type=option_types.PLACE,
    section="Installation",
    is_rare=True,
    multiple=True,
    metavar="PATH|URL",
    help="Another location of wheels; may be repeated.",
)
@shared.option(
    "--no-index",
    section="Installation",
    is_rare=True,
    is_flag=True,
    help="Take packages only from --find-links.",
)
@shared.option(
    "--with",
    "packages",
    section="Installation",
    multiple=True,
    metavar="PKG",
    help="Another package to install, such as numpy; may be repeated.",
)
@shared.option(
    "--cache",
    section="Installation",
    is_rare=True,
    type=click.Path(path_type=Path),
    help="Folder for environments; default: the user's cache.",
)
@shared.option(
    "--timeout",
    section="Installation",
    is_rare=True,
    type=option_types.SECONDS,
    default="30m",
    show_default=True,
    help="Deadline of one installation.",
)
@shared.option(
    "-n",
    "--times",
    section=shared.ENDS,
    type=shared.at_least(1),
    default=1,
    show_default=True,
    help="Number of runs of each version.",
)
@shared.STALL
@shared.YES
@shared.option(
    "--output-dir",
    section=shared.OUTPUT_SECTION,
    type=click.Path(path_type=Path),
    help=(
        "Folder for the results: a result that it has is not computed again; default: a new folder"
        " in reprokit-out."
    ),
)
@shared.JSON
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

    The pack's repro runs with one version after the other. A version with the same failure is bad,
    and one without a failure is good. A version that cannot be installed, that fails in a different
    way or that gives no result is skipped.

    \b
    Examples:
      reprokit bisect PACK --good 2.9.1 --bad 2.13.0 --yes
      reprokit bisect PACK --good v29/bin/python --bad v213/bin/python --interpreter v212/bin/python
      git bisect run reprokit bisect PACK --git --python build/bin/python --yes
    """
    from reprokit.host.bisect import search
    from reprokit.host.bisect.torch_environments import InstallOptions
    from reprokit.host.pack import reopen
    from reprokit.host.system import interrupts

    options = InstallOptions(python=python, timeout_s=building.pop("timeout"), **building)
    if is_git:
        _refuse_with_git(ctx)
    elif good is None or bad is None:
        raise BadInput(
            "name both ends of the range with --good and --bad, or test one interpreter with --git"
        )
    opened = reopen.open_pack(pack)
    search.require_bisectable_pack(opened)
    consent.require_consent(pack, yes)
    request = search.BisectRequest(opened, options, times, stall, Path())
    with interrupts.deferred(), terminal.LiveStatus(is_quiet=as_json) as live:
        if is_git:
            step = _test_interpreter(pack, request, yes, live)
        else:
            result, describe = _search(
                pack,
                request,
                (good or "", bad or ""),
                versions,
                interpreters,
                output_dir,
                yes,
                live,
            )
    if is_git:
        document, status = {"schema": 1, **dataclasses.asdict(step)}, GIT_CODES[step.answer]
    else:
        document = {
            **to_json(result, (good or "", bad or "")),
            "describe": str(describe) if describe else None,
        }
        status = 130 if result.is_interrupted else EXIT_CODES[result.outcome.status]
    if as_json:
        out.RESULTS.print_json(document)
    elif is_git:
        out.RESULTS.print_line(f"{step.answer}: {step.title or 'it passes'}")
    else:
        print_bisection(result)
        if describe:
            out.RESULTS.print_line(f"The description of the issue with this sentence: {describe}")
    ctx.exit(status)


def _refuse_with_git(ctx: click.Context) -> None:
    used = [
        param.opts[0]
        for param in ctx.command.params
        if param.name in NOT_WITH_GIT and is_given(ctx, param.name)
    ]
    if used:
        raise BadInput(
            f"{' and '.join(used)} cannot be used with --git, which runs only the interpreter of"
            " --python"
        )


def _test_interpreter(
    pack: Path, request: BisectRequest, yes: bool, live: terminal.LiveStatus
) -> BisectStep:
    """Test one interpreter, as ``git bisect run`` needs it."""
    from reprokit.host.bisect import search
    from reprokit.host.bisect.torch_versions import TorchVersion
    from reprokit.host.system import interrupts

    try:
        python = shared.interpreter_option(request.options.python)
    except BadInput as problem:  # git must skip a commit whose build is broken
        return search.BisectStep("", "skip", str(problem))
    with interrupts.allowed():
        consent.ask_consent(pack, request.opened.program, python, yes, live)
    with tempfile.TemporaryDirectory(prefix="reprokit-bisect-") as folder:
        return search.try_version(
            TorchVersion("", python), request, live.show_message, Path(folder)
        )


def _search(
    pack: Path,
    request: BisectRequest,
    ends: tuple[str, str],
    versions: str | None,
    pythons: tuple[str, ...],
    output_dir: Path | None,
    yes: bool,
    live: terminal.LiveStatus,
) -> tuple[BisectResult, Path | None]:
    """Plan the versions, ask for consent, and search. Return the result, and the description of the
    issue with it, if there are both.
    """
    from reprokit.core.shared.contract import run_names
    from reprokit.host.bisect import search, torch_versions
    from reprokit.host.pack import issue_text
    from reprokit.host.run import run_directory
    from reprokit.host.system import files, interrupts

    listed = [v.strip() for v in (versions or "").split(",") if v.strip()]
    plan = torch_versions.plan_bisection(*ends, listed, pythons, request.options, live.show_message)
    with interrupts.allowed():
        consent.ask_consent(
            pack, request.opened.program, f"torch {', '.join(plan.names)}", yes, live
        )
    run = run_directory.create_run_directory(output_dir, f"bisect-{request.opened.verdict.kind}")
    try:
        live.show_message(
            f"{len(plan.names)} versions, answers in {run.output / search.ANSWERS_FILE}"
        )
        result = search.bisect_torch(
            plan, dataclasses.replace(request, folder=run.path), live.show_message
        )
        describe = request.opened.pack.files.get(run_names.DESCRIBE_FILE, b"")
        if result.outcome.status != "found" or not describe:
            return result, None
        text = issue_text.add_version_range(describe.decode("utf-8", "replace"), result.says)
        path = run.output / Path(run_names.DESCRIBE_FILE).name
        return result, files.write_atomically(path, out.clean_text(text))
    finally:
        run.release_lock()


def to_json(result: BisectResult, ends: tuple[str, str]) -> dict[str, object]:
    """Return the object that ``--json`` prints; later versions only add keys."""
    names, outcome = result.plan.names, result.outcome
    limits = (
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
        "range": limits,
        "skipped": [names[index] for index in outcome.skipped],
        "is_fix": result.plan.is_backwards,
        "is_interrupted": result.is_interrupted,
        "says": result.says,
        "steps": [dataclasses.asdict(step) for step in result.steps],
    }


def print_bisection(result: BisectResult) -> None:
    """Print the steps in the order in which they ran, then the range."""
    colours = {"good": "green", "bad": "red", "skip": "yellow"}
    rows: list[tuple[out.Part, ...]] = []
    for step in result.steps:
        seconds = "known" if step.is_known else f"{step.seconds:.1f}"
        version, python, title = step.version or "?", step.python, step.title
        if out.RESULTS.isatty():
            rows.append((version, (step.answer, colours[step.answer]), seconds, python, title))
        else:
            out.RESULTS.print_line(
                f"{version:<16} {step.answer:<5} {seconds:>8}  {python}  {title}".rstrip()
            )
    if rows:
        out.RESULTS.print_table(("torch", "verdict", "seconds", "python", "title"), rows)
    out.RESULTS.print_line(result.says)
