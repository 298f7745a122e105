"""The line: target -> run -> judge -> sign -> minimize -> pack -> render, readable on one screen.

Each step takes one record and gives one. A step that cannot do its work says why in ``missing`` and the line
goes on, so that a pack is always left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar

from ..core.records import Answer, BadInput, Missing, Observation, Verdict, to_json
from ..core.signature import sign
from ..core.verdict import judge
from . import (
    ablate,
    agreement,
    bundle,
    compared,
    environment,
    escalate,
    files,
    interrupts,
    kernels,
    minimize,
    observe,
    run,
    rundir,
    warmth,
)
from .captured import Captured, phases_of, versions_of
from .launch import Request
from .oracle import Standing
from .proven import Candidate
from .run import Outcome
from .study import Study

EAGER_KINDS = frozenset({"exception", "crash", "hang", "slow-compile", "oom", "error-in-eager"})
"""Verdicts that a run without torch.compile confirms or refutes."""
BEFORE_COMPILE = frozenset({"build", "import"})
"""Phases of a factory target in which nothing was compiled yet."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})

UNJUDGED = Verdict("unknown", None, None, "The run could not be judged; what is missing says why.")

Say = Callable[[str], None]
T = TypeVar("T")


def capture(
    request: Request,
    output: Path | None,
    say: Say,
    show: run.Show | None = None,
    echo: tuple[IO[bytes], IO[bytes]] | None = None,
    show_status: Callable[[Standing], None] | None = None,
) -> Captured:
    """Run the whole line; raises BadInput only for what the user must mend."""
    with interrupts.held():
        place = rundir.create(output, request.target.label)
        try:
            if warmth.mend_headers():
                say("removed half a precompiled header of a killed g++: C++ builds took several times as long")
            say(f"running {request.target.words} in {place.path}")
            outcome = run_target(compared.watched(request, place.path), place.path, show, echo)
            journals = observe.read_journals(place.path)
            refuse_bad_target(journals, place.path)
            missing = [*outcome.missing]
            seen = look_back(request, outcome, place.path, journals, missing)
            verdict = judged(seen, missing)
            if verdict.kind == "ok" and not outcome.is_interrupted:
                seen = look_closer(request, seen, journals, place.path, missing, say, show, show_status)
                verdict = judged(seen, missing)
            seen = own_kernel(request, seen, verdict, journals, place.path, missing)
            if request.beside is not None and not outcome.is_interrupted:
                say("compiling for a simulated GPU too")
                real, ended = seen, verdict
                seen = attempt(
                    "simulation", missing, lambda: agreement.check(request, real, ended, place.path, show), seen
                )
            verdict = judged(seen, missing)
            if wants_eager(request, verdict, outcome):
                say(f"{verdict.kind}; running once more without torch.compile")
                first = seen
                seen = attempt(
                    "eager run", missing, lambda: escalate.check_eager(request, first, place.path, show), first
                )
                verdict = judged(seen, missing)
            if escalate.is_wanted(request, verdict, outcome):
                say("asking what is still open, in shorter runs")
                asked, none = verdict, tuple[Answer, ...]()
                answers = attempt(
                    "questions", missing, lambda: escalate.ask(request, asked, outcome, place.path, show), none
                )
                seen = dataclasses.replace(seen, answers=answers)
            study = Study(request, verdict, seen, journals, place, missing, say, show_status)
            if (request.minimizes or request.rungs != "none") and not outcome.is_interrupted:
                examine(study)
            return finish(study, outcome)
        finally:
            compared.forget(place.path)
            place.release()


def look_closer(
    request: Request, seen: Observation, journals: observe.Journals, run_path: Path, missing: list[Missing], say: Say,
    show: run.Show | None, show_status: Callable[[Standing], None] | None,
) -> Observation:  # fmt: skip
    """Look for what a run that ended well may hide: wrong results, or on a simulated GPU kernels that do not compile."""
    if request.gpu is None and request.compares:
        say("comparing its results with eager's")
        return attempt(
            "comparison with eager", missing, lambda: compared.check(request, seen, run_path, missing, show), seen
        )
    if request.gpu is not None and request.kernels != "none":
        say("compiling the Triton kernels that it generated")
        python, which = request.python, request.kernels
        return attempt(
            "kernels", missing, lambda: kernels.check(seen, journals, run_path, python, which, show_status), seen
        )
    return seen


def own_kernel(
    request: Request, seen: Observation, verdict: Verdict, journals: observe.Journals, run_path: Path,
    missing: list[Missing],
) -> Observation:  # fmt: skip
    """A program that needs Triton alone is made small and told as a kernel."""
    return attempt("kernel", missing, lambda: kernels.own(request, seen, verdict, journals, run_path), seen)


def examine(study: Study, resume: bool = False) -> None:
    """Ask what the failure is at its smallest and where it begins; what is found stays in the run directory."""
    attempt("study of the failure", study.missing, lambda: study.run(resume), None)


def repack(
    run_path: Path, say: Say, budget_s: float = 0.0, resume: bool = False, show: Callable[[Standing], None] | None = None,
    python: str | None = None, ablates: bool = False, proofs: int = Request.proofs,
) -> Captured:  # fmt: skip
    """Judge and pack a run directory once more, after minimizing it when there is a budget for that.

    ``ablates`` asks for the rungs of the ladder too, also where the capture was told not to.

    For a reprokit that was killed, or whose pack found no room, or that was told not to minimize.
    """
    with interrupts.held():
        place = rundir.reopen(run_path)
        try:
            request, outcome, before = run.restore(place.path)
            journals = observe.read_journals(place.path)
            missing = [*outcome.missing]
            seen = look_back(request, outcome, place.path, journals, missing)
            seen = dataclasses.replace(seen, **before)
            seen = own_kernel(request, seen, judged(seen, missing), journals, place.path, missing)
            verdict = judged(seen, missing)
            rungs = "none" if not ablates else "few" if request.rungs == "none" else request.rungs
            if budget_s:
                request = dataclasses.replace(request, budget_s=budget_s, proofs=proofs)
            asked = dataclasses.replace(request, minimizes=True, rungs=rungs)
            study = Study(asked, verdict, seen, journals, place, missing, say, show, python)
            if budget_s:
                examine(study, resume)
            return finish(study, outcome)
        finally:
            place.release()


def look_back(
    request: Request, outcome: Outcome, run_path: Path, journals: observe.Journals, missing: list[Missing]
) -> Observation:
    """Make the observation; of what cannot be read, at least how it ended."""
    bare = Observation(exit_status=outcome.exit_status, is_command=request.target.kind == "command")
    return attempt("observation", missing, lambda: observe.observe(request, outcome, run_path, journals), bare)


def judged(seen: Observation, missing: list[Missing]) -> Verdict:
    """Give the verdict, or one that says that there is none."""
    return attempt("verdict", missing, lambda: judge(seen), UNJUDGED)


def finish(study: Study, outcome: Outcome) -> Captured:
    """The end of the line: sign, ask for the environment, pack."""
    request, journals, place, missing, say = study.request, study.journals, study.place, study.missing, study.say
    verdict, seen = study.verdict, study.seen
    nothing_missing: list[Missing] = []
    told = attempt("journal", missing, lambda: observe.missing_of(journals, place.path, request), nothing_missing)
    missing += [m for m in told if m not in missing]
    captured = Captured(verdict, sign(verdict, seen), seen, place.path, missing=missing)
    captured.minimized = minimize.load(place.path)
    captured.ablation = study.ablation or ablate.load(place.path)
    captured.phases = attempt("costs", missing, lambda: phases_of(journals, outcome), {})
    captured.weights = str(journals.last("weights").get("why") or "") if request.target.kind in ("zoo", "hf") else ""
    made = journals.last("hf")
    if made.get("kind"):
        shapes = [f"{name} {shape}" for name, shape in (made.get("inputs") or {}).items()]
        captured.model = ", ".join([str(made["kind"]), *shapes])
    say("collecting the environment")
    nothing = environment.Environment({}, "", ())
    found = attempt("environment", missing, lambda: ask(request, journals, place.path, outcome), nothing)
    missing += found.missing
    captured.versions = versions_of(journals, found)
    say("packing")
    attempt("pack", missing, lambda: leave(request, captured, found, journals, place), None)
    return captured


def attempt(what: str, missing: list[Missing], step: Callable[[], T], otherwise: T) -> T:
    """Do one step; when it cannot be done, say why and give ``otherwise``, so that the line goes on."""
    try:
        return step()
    except KeyboardInterrupt:
        missing.append(Missing(what, "interrupted"))
    except OSError as problem:
        missing.append(Missing(what, problem.strerror or str(problem)))
    except Exception as problem:
        missing.append(Missing(what, f"a defect of reprokit: {problem!r}"))
    return otherwise


def run_target(
    request: Request, run_path: Path, show: run.Show | None, echo: tuple[IO[bytes], IO[bytes]] | None
) -> Outcome:
    """Run it; a place that cannot be written to is the user's to mend."""
    try:
        return run.run(request, run_path, show, echo)
    except OSError as problem:
        if problem.errno in (errno.ENOEXEC, errno.E2BIG, errno.ENOENT):
            raise BadInput(
                f"cannot start {request.target.words}: {problem.strerror}; name a program that runs"
            ) from problem
        if problem.errno not in NO_ROOM:
            raise
        why = f"cannot write in {run_path}: {problem.strerror}; free some space, or name another --output-dir"
        raise BadInput(why) from problem


def refuse_bad_target(journals: observe.Journals, run_path: Path) -> None:
    """A target that cannot be built is the user's to mend: one line, and the full text stays in the run directory."""
    message = journals.last("bad_target").get("message")
    if message:
        raise BadInput(f"{message} (all of its output: {run_path / 'logs' / 'stderr.txt'})")
    if not journals.by_pid:
        said = files.read_tail(run_path / "logs" / "stderr.txt", 4_000).strip().splitlines()
        spec = run.read_run(run_path)
        if (
            spec.get("target", {}).get("kind") != "command"
            and spec.get("exit_status") not in (0, None)
            and int(spec["exit_status"]) > 0
        ):
            raise BadInput(
                f"{spec.get('python')} cannot run reprokit's agent: {said[-1] if said else 'it said nothing'}; it needs Python 3.10 or newer and torch 2.9 or newer"
            )


def wants_eager(request: Request, verdict: Verdict, outcome: Outcome) -> bool:
    """Whether only a run without torch.compile can tell whose fault it is. A command is run only once."""
    if request.target.kind == "command" or outcome.is_interrupted:
        return False
    return verdict.kind in EAGER_KINDS and verdict.phase not in BEFORE_COMPILE


def ask(request: Request, journals: observe.Journals, run_path: Path, outcome: Outcome) -> environment.Environment:
    """Ask the machine, and the interpreter that the target used."""
    python = journals.last("process").get("executable") if request.target.kind == "command" else request.python
    if outcome.is_interrupted:
        return environment.collect(None, run_path, "not asked after an interrupt")
    return environment.collect(python, run_path, is_fresh=False)


def leave(
    request: Request,
    captured: Captured,
    found: environment.Environment,
    journals: observe.Journals,
    place: rundir.RunDir,
) -> None:
    """Make the pack and say where it lies."""
    records = {"observation": captured.seen, "verdict": captured.verdict, "signature": captured.signature}
    for name, record in records.items():
        with contextlib.suppress(OSError):  # they can be made again, and are in the pack
            files.write_json(place.path / f"{name}.json", to_json(record))
    story = bundle.Story(
        request, captured.verdict, captured.signature, captured.seen, journals, found, captured.minimized,
        captured.ablation,
    )  # fmt: skip
    made = bundle.make(story, captured.missing, place)
    captured.pack_path, captured.issue_path, captured.repro_path = made.pack, made.issue, made.repro
    captured.candidate_path = made.candidate
    if captured.verdict.kind != "ok" and isinstance(made.program, Candidate):
        captured.unproven = made.program.why
    captured.report_path, captured.url, captured.trimmed = made.report, made.url, made.trimmed
