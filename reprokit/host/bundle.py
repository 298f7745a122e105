"""From a judged run to the pack: redact, write the issue, lay the files out, tar them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core import devices, knobs
from ..core.ablation import Ablation
from ..core.records import Missing, Observation, Signature, Verdict, to_json
from ..core.redact import Redactor
from . import again, environment, files, observe, pack, private, render, report, rundir, shown
from .launch import DEADLINE_S, Request
from .minimized import Minimized
from .proven import CANDIDATE, REPRO, Candidate, Repro


@dataclass(frozen=True)
class Story:
    """All that is known of one capture, before redaction."""

    request: Request
    verdict: Verdict
    signature: Signature
    seen: Observation
    journals: observe.Journals
    environment: environment.Environment
    minimized: Minimized | None = None
    ablation: Ablation | None = None


@dataclass
class Made:
    """Where the files lie; None for what could not be made."""

    pack: Path | None = None
    issue: Path | None = None
    repro: Path | None = None
    candidate: Path | None = None
    program: Repro | Candidate | None = None
    report: Path | None = None
    url: str = ""
    trimmed: list[str] = field(default_factory=list)
    hidden: dict[str, Any] = field(default_factory=dict)


def make(story: Story, missing: list[Missing], place: rundir.RunDir) -> Made:
    """Leave ``<run>/pack/`` and the tarball of the same files; what fails becomes a line of ``missing``."""
    made = Made()
    redactor = private.redactor()
    draft = pack.gather(place.path, redactor)
    missing += draft.missing
    has_failed = story.verdict.kind != "ok"
    small = story.minimized
    found = shown.choose(
        story.request, story.verdict, story.seen, story.journals, place.path, small, redactor
    )  # fmt: skip
    program = made.program = found.program
    missing += found.missing
    if small is not None:
        draft.add_json("minimize.json", redactor.value(again.about(small)))
    ladder = story.ablation.to_json() if story.ablation is not None else {}
    if ladder:
        draft.add_json("ablation.json", redactor.value(ladder))
    if isinstance(program, Repro):
        draft.add_repro(program, redactor)
    elif program.text:
        draft.add_text(CANDIDATE, program.text)
    if found.original:
        draft.add_text(again.ORIGINAL, found.original)
    known = redactor.value(story.environment.facts)
    facts = _facts(story, known, program, missing, ladder, redactor)
    if has_failed and story.verdict.responsible != "reprokit":
        made.url = _add_issue(facts, draft, missing)
    try:
        told = report.make(story.verdict, story.signature, story.seen, story.journals, place.path, ladder)
        model = redactor.value(told)
        draft.add_json("report.json", model)
        draft.add_text("report.html", render.report(model))
    except Exception as problem:
        missing.append(Missing("report.html", f"it could not be made: {problem!r}"))
    draft.add_text("command.txt", facts.command + "\n")
    draft.add_text("collect_env.txt", facts.collect_env)
    draft.add_text("run.json", redactor.json(files.read_text(place.path / "run.json")))
    draft.add_json("verdict.json", to_json(facts.verdict))
    draft.add_json("signature.json", to_json(facts.signature))
    draft.add_json("observation.json", to_json(facts.seen))
    gone = to_json(redactor.value(tuple(missing)))
    if story.request.gpu is not None:
        draft.add_json("gpu.json", story.request.gpu)
    if story.seen.growth:
        draft.add_json("growth.json", redactor.value(story.seen.growth))
    draft.add_json("environment.json", {**known, "changed_in_target": facts.configs, "missing": gone})
    folder = place.path / "pack"
    pack.unpack_beside(draft, folder)
    names = ("issue.md", REPRO, CANDIDATE, "report.html")
    made.issue, made.repro, made.candidate, made.report = (p if (p := folder / n).exists() else None for n in names)
    try:
        data = pack.build(draft, lambda *told: render.pack_readme(facts, *told))
        name = f"reprokit-{story.request.target.label}-{story.verdict.kind}-{story.signature.id}.tar.gz"
        made.pack = pack.write(data, place.output, name)
    except OSError as problem:
        text = f"it could not be written: {problem.strerror}; free some space, and capture again; the run is in {place.path}"
        missing.append(Missing("pack", text))
    made.trimmed, made.hidden = draft.trimmed, draft.hidden
    return made


def _add_issue(facts: render.Facts, draft: pack.Draft, missing: list[Missing]) -> str:
    """Add the texts of the issue; gives the short URL of its form, or nothing."""
    try:
        issue = render.issue(facts)
    except Exception as problem:  # a pack without an issue is better than none
        missing.append(Missing("issue.md", f"it could not be rendered: {problem!r}"))
        return ""
    draft.add_text("issue.md", issue.joined)
    for name in ("describe", "error_logs", "versions"):
        draft.add_text(f"issue/{name}.md", getattr(issue, name))
    if issue.url:
        draft.add_text("issue/url.txt", issue.url + "\n")
    return issue.url


def _facts(
    story: Story,
    known: dict[str, Any],
    program: Repro | Candidate,
    missing: list[Missing],
    ladder: dict[str, Any],
    redactor: Redactor,
) -> render.Facts:
    journals = story.journals
    return render.Facts(
        verdict=redactor.value(story.verdict),
        signature=redactor.value(story.signature),
        seen=redactor.value(story.seen),
        command=redactor.text(command_line(story.request, story.seen.growth)),
        program=program,
        is_simulated=journals.last("weights").get("kind") == "fake",
        collect_env=redactor.text(story.environment.collect_env),
        environment={k: v for k, v in known.items() if k not in ("packages", "log_names")},
        variables=known.get("variables", {}),
        configs=redactor.value(journals.last("config").get("changed") or {}),
        missing=redactor.value(tuple(missing)),
        ablation=redactor.value(ladder),
    )


def command_line(request: Request, growth: dict[str, Any] | None = None) -> str:
    """The command that makes this capture again, or all of the runs that it was the largest of."""
    words = ["reprokit", "capture"]
    given = dict(request.knobs)
    if growth:
        words = ["reprokit", "scale", "--at", str(growth["at"])]
        sizes = ",".join(str(row["size"]) for row in growth["sizes"])
        words += ["--set", f"{growth['knob']}={sizes}"]
        words += [w for k, v in given.items() if k not in (growth["knob"], "dtype") for w in ("--set", f"{k}={v}")]
        given = {k: v for k, v in given.items() if k == "dtype"}
    for name, value in given.items():
        words += knobs.words(name, value) if value is not None else []
    for name, value in request.compile.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is False:
            words.append("--no-" + flag[2:])
        elif value is not None:
            words += [flag, str(value)]
    if request.train:
        words.append("--train")
    if request.device:
        words += ["--device", request.device]
    if request.gpu is not None:
        words += ["--gpu", devices.label(request.gpu)]
    if request.beside is not None:
        words.append("--compare-simulated")
    if request.tensor_parallel:
        words += ["--tensor-parallel-gpus", str(request.tensor_parallel)]
    if request.weights != "auto":
        words += ["--weights", request.weights]
    usual = None if request.target.kind == "command" else DEADLINE_S
    if request.deadline_s is not None and request.deadline_s != usual:
        words += ["--timeout", f"{request.deadline_s:g}"]
    if request.stall_s != Request.stall_s:
        words += ["--stall", f"{request.stall_s:g}"]
    if request.on_stall:
        words += ["--on-stall", request.on_stall]
    if request.grace_s != Request.grace_s:
        words += ["--grace", f"{request.grace_s:g}"]
    if request.line_repeats != Request.line_repeats:
        words += ["--line-repeats", str(request.line_repeats)]
    if request.escalate is not None:
        words.append("--escalate" if request.escalate else "--no-escalate")
    if not request.minimizes:
        words.append("--no-minimize")
    elif request.budget_s != Request.budget_s:
        words += ["--budget", f"{request.budget_s:g}"]
    if request.minimizes and request.proofs != Request.proofs:
        words += ["--proofs", str(request.proofs)]
    if request.logs:
        words += ["--logs", ",".join(request.logs)]
    if not request.has_trace:
        words.append("--no-trace")
    target = request.target
    return (
        shlex.join(words) + " " + target.words
        if target.kind == "command"
        else shlex.join([*words, "--model", target.words])
    )
