"""From a judged run to the pack: redact, write the issue, lay the files out, tar them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reprokit.core.experiments.ablation import Ablation
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import ConfigChanged, Weights
from reprokit.core.shared.contract.serialize import to_json
from reprokit.host.environment import machine_facts
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proven import CANDIDATE, REPRO, Candidate, Repro
from reprokit.host.pack import issue_text, reopen, shown_program, writer
from reprokit.host.report import html_report, report_data
from reprokit.host.request.command_line import command_line
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory
from reprokit.host.system import files, private_names


@dataclass(frozen=True)
class PackInput:
    """All that is known of one capture, before redaction."""

    request: Request
    verdict: Verdict
    signature: Signature
    seen: Observation
    journals: observation_reader.Journals
    environment: machine_facts.MachineFacts
    minimized: MinimizeResult | None = None
    ablation: Ablation | None = None


@dataclass
class PackPaths:
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


def make_pack(story: PackInput, missing: list[Missing], place: run_directory.RunDir) -> PackPaths:
    """Leave ``<run>/pack/`` and the tarball of the same files; what fails becomes a line of
    ``missing``.
    """
    made = PackPaths()
    redactor = private_names.redactor()
    draft = writer.gather_files(place.path, redactor)
    missing += draft.missing
    has_failed = story.verdict.kind != "ok"
    small = story.minimized
    found = shown_program.choose_program(
        story.request, story.verdict, story.seen, story.journals, place.path, small, redactor
    )
    program = made.program = found.program
    missing += found.missing
    if small is not None:
        draft.add_json(run_names.MINIMIZE_FILE, redactor.value(reopen.about_minimized(small)))
    ladder = story.ablation.to_json() if story.ablation is not None else {}
    if ladder:
        draft.add_json(run_names.ABLATION_FILE, redactor.value(ladder))
    if isinstance(program, Repro):
        draft.add_repro(program, redactor)
    elif program.text:
        draft.add_text(CANDIDATE, program.text)
    if found.original:
        draft.add_text(reopen.ORIGINAL, found.original)
    known = redactor.value(story.environment.facts)
    facts = _facts(story, known, program, missing, ladder, redactor)
    if has_failed and story.verdict.responsible != "reprokit":
        made.url = _add_issue(facts, draft, missing)
    try:
        told = report_data.make_report_data(
            story.verdict, story.signature, story.seen, story.journals, place.path, ladder
        )
        model = redactor.value(told)
        draft.add_json(run_names.REPORT_DATA_FILE, model)
        draft.add_text(run_names.REPORT_FILE, html_report.html_report(model))
    except Exception as problem:
        missing.append(Missing(run_names.REPORT_FILE, f"it could not be made: {problem!r}"))
    draft.add_text(run_names.COMMAND_FILE, facts.command + "\n")
    draft.add_text(run_names.COLLECT_ENV_FILE, facts.collect_env)
    draft.add_text(
        run_names.RUN_FILE, redactor.json(files.read_text(place.path / run_names.RUN_FILE))
    )
    draft.add_json(run_names.VERDICT_FILE, to_json(facts.verdict))
    draft.add_json(run_names.SIGNATURE_FILE, to_json(facts.signature))
    draft.add_json(run_names.OBSERVATION_FILE, to_json(facts.seen))
    gone = to_json(redactor.value(tuple(missing)))
    if story.request.gpu is not None:
        draft.add_json(run_names.GPU_FILE, story.request.gpu)
    if story.seen.growth:
        draft.add_json(run_names.GROWTH_FILE, redactor.value(story.seen.growth))
    draft.add_json(
        run_names.ENVIRONMENT_FILE, {**known, "changed_in_target": facts.configs, "missing": gone}
    )
    folder = place.path / run_names.PACK_FOLDER
    writer.unpack_beside(draft, folder)
    names = (run_names.ISSUE_FILE, REPRO, CANDIDATE, run_names.REPORT_FILE)
    made.issue, made.repro, made.candidate, made.report = (
        p if (p := folder / n).exists() else None for n in names
    )
    try:
        data = writer.build_tarball(draft, lambda *told: issue_text.pack_readme(facts, *told))
        label, kind = story.request.target.label, story.verdict.kind
        name = f"reprokit-{label}-{kind}-{story.signature.id}.tar.gz"
        made.pack = writer.write_tarball(data, place.output, name)
    except OSError as problem:
        text = (
            f"it could not be written: {problem.strerror}; free some space, and capture again; the"
            f" run is in {place.path}"
        )
        missing.append(Missing("pack", text))
    made.trimmed, made.hidden = draft.trimmed, draft.hidden
    return made


def _add_issue(
    facts: issue_text.IssueFacts, draft: writer.PackDraft, missing: list[Missing]
) -> str:
    """Add the texts of the issue; gives the short URL of its form, or nothing."""
    try:
        issue = issue_text.make_issue(facts)
    except Exception as problem:  # a pack without an issue is better than none
        missing.append(Missing(run_names.ISSUE_FILE, f"it could not be rendered: {problem!r}"))
        return ""
    draft.add_text(run_names.ISSUE_FILE, issue.joined)
    for name in ("describe", "error_logs", "versions"):
        draft.add_text(f"issue/{name}.md", getattr(issue, name))
    if issue.url:
        draft.add_text("issue/url.txt", issue.url + "\n")
    return issue.url


def _facts(
    story: PackInput,
    known: dict[str, Any],
    program: Repro | Candidate,
    missing: list[Missing],
    ladder: dict[str, Any],
    redactor: Redactor,
) -> issue_text.IssueFacts:
    journals = story.journals
    return issue_text.IssueFacts(
        verdict=redactor.value(story.verdict),
        signature=redactor.value(story.signature),
        seen=redactor.value(story.seen),
        command=redactor.text(command_line(story.request, story.seen.growth)),
        program=program,
        is_simulated=journals.last(Weights).kind == "fake",
        collect_env=redactor.text(story.environment.collect_env),
        environment={k: v for k, v in known.items() if k not in ("packages", "log_names")},
        variables=known.get("variables", {}),
        configs=redactor.value(journals.last(ConfigChanged).changed),
        missing=redactor.value(tuple(missing)),
        ablation=redactor.value(ladder),
    )
