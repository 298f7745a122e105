"""Make the pack of a judged run: redact, write the issue and the report, build the tarball."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from reprokit.core.experiments.ablation import AnyAblation
from reprokit.core.experiments.remedies import advice
from reprokit.core.judge.hangs import ranks
from reprokit.core.judge.responsible import responsibility
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.events import ConfigChanged, Process, Weights
from reprokit.core.shared.contract.serialize import to_json
from reprokit.core.triage.decision import UNDECIDED, Decision, decide
from reprokit.core.triage.known_failures import KnownMatch
from reprokit.host.environment import machine_facts
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs.proven import Candidate, Repro
from reprokit.host.pack import issue_text, reopen, shown_program, writer
from reprokit.host.report import report_data, report_head, users_line
from reprokit.host.report.exports import speedscope, trace_events
from reprokit.host.report.page import compile_pages, html_report
from reprokit.host.report.report_model import ReportedDecision, ReportHead, ReportModel
from reprokit.host.request.command_line import capture_command
from reprokit.host.request.run_request import Request
from reprokit.host.run import observation_reader, run_directory
from reprokit.host.system import files, private_names
from reprokit.host.watch import stacks

TEXTS = ("reason", "detail", "responsible_because", "not_filed", "path", "evidence", "eager")
"""The sentences of the page, which may name files of the user."""


@dataclass(frozen=True)
class PackInput:
    """The data of one capture, before redaction."""

    request: Request
    verdict: Verdict
    signature: Signature
    seen: Observation
    journals: observation_reader.Journals
    environment: machine_facts.MachineFacts
    minimized: MinimizeResult | None = None
    ablation: AnyAblation | None = None
    known: Sequence[KnownMatch] = ()
    """The known failures that the failure matches, the best first."""


@dataclass
class PackPaths:
    """The paths of the files; None for a file that could not be made."""

    pack: Path | None = None
    issue: Path | None = None
    repro: Path | None = None
    candidate: Path | None = None
    program: Repro | Candidate | None = None
    report: Path | None = None
    decision: Decision = UNDECIDED
    trimmed: list[str] = field(default_factory=list)
    hidden: dict[str, Any] = field(default_factory=dict)


def make_pack(capture: PackInput, missing: list[Missing], run: run_directory.RunDir) -> PackPaths:
    """Write ``<run>/pack/`` and a tarball of the same files. Add a line to ``missing`` for each
    part that fails.
    """
    paths = PackPaths()
    redactor = private_names.get_redactor()
    draft = writer.gather_files(run.path, redactor)
    missing += draft.missing
    has_failed = capture.verdict.kind != "ok"
    small = capture.minimized
    chosen = shown_program.choose_program(
        capture.request, capture.verdict, capture.seen, capture.journals, run.path, small, redactor
    )
    program = paths.program = chosen.program
    missing += chosen.missing
    if small is not None:
        draft.add_json(
            run_names.MINIMIZE_FILE, redactor.redact_value(reopen.minimize_document(small))
        )
    ablation = redactor.redact_value(capture.ablation)
    steps = ablation.to_json() if ablation is not None else {}
    if steps:
        draft.add_json(run_names.ABLATION_FILE, steps)
    if isinstance(program, Repro):
        draft.add_repro(program, redactor)
    elif program.text:
        draft.add_text(run_names.CANDIDATE_FILE, program.text)
    if chosen.original:
        draft.add_text(run_names.ORIGINAL_FILE, chosen.original)
    known = redactor.redact_value(capture.environment.facts)
    facts = _facts(capture, known, program, missing, ablation, redactor)
    traces = [name for name in draft.files if name.startswith("trace/")]
    traces.sort(key=lambda name: -len(draft.files[name]))
    facts = dataclasses.replace(facts, traces=tuple(f"{name}.gz" for name in traces))
    paths.decision = decide(capture.verdict, capture.known)
    if has_failed and capture.verdict.responsible != "reprokit":
        paths.decision = _add_issue(facts, draft, missing) or paths.decision
    exports = _add_exports(capture, draft, missing, run.path, redactor)
    add_compile_pages(draft, missing)
    try:
        head = _report_head(capture, facts, paths.decision, steps, redactor)
        report = report_data.make_report_data(
            capture.verdict,
            capture.signature,
            capture.seen,
            capture.journals,
            run.path,
            head,
            steps,
        )
        # the head is redacted already, and a proved program must not change
        redacted = redactor.redact_value(report)
        texts = {name: _with_short_paths(redacted[name], facts.folders) for name in TEXTS}
        model = {**redacted, **texts, "head": head}
        draft.add_json(run_names.REPORT_DATA_FILE, model)
        compiles = run_names.COMPILES_FILE if run_names.COMPILES_FILE in draft.files else ""
        page = html_report.render_html_report(cast(ReportModel, model), exports, compiles)
        draft.add_text(run_names.REPORT_FILE, page)
    except Exception as problem:
        missing.append(Missing(run_names.REPORT_FILE, f"it could not be made: {problem!r}"))
    draft.add_text(run_names.COMMAND_FILE, facts.command + "\n")
    draft.add_text(run_names.COLLECT_ENV_FILE, facts.collect_env)
    draft.add_text(
        run_names.RUN_FILE, redactor.redact_json(files.read_text(run.path / run_names.RUN_FILE))
    )
    draft.add_json(run_names.VERDICT_FILE, to_json(facts.verdict))
    draft.add_json(run_names.SIGNATURE_FILE, to_json(facts.signature))
    draft.add_json(run_names.OBSERVATION_FILE, to_json(facts.seen))
    if states := ranks.rank_states(facts.seen):
        draft.add_json(run_names.RANKS_FILE, {"ranks": to_json(states)})
    gone = to_json(redactor.redact_value(tuple(missing)))
    if capture.request.gpu is not None:
        draft.add_json(run_names.GPU_FILE, capture.request.gpu)
    if capture.seen.growth:
        draft.add_json(run_names.GROWTH_FILE, redactor.redact_value(capture.seen.growth))
    changed = facts.configs
    if not capture.environment.torch_defaults:  # these may be the defaults again
        last = capture.journals.last_event_of_type(ConfigChanged)
        changed = redactor.redact_value(last.changed)
    draft.add_json(
        run_names.ENVIRONMENT_FILE, {**known, "changed_in_target": changed, "missing": gone}
    )
    folder = run.path / run_names.PACK_FOLDER
    writer.write_pack_folder(draft, folder)
    names = (
        run_names.ISSUE_FILE,
        run_names.REPRO_FILE,
        run_names.CANDIDATE_FILE,
        run_names.REPORT_FILE,
    )
    paths.issue, paths.repro, paths.candidate, paths.report = (
        p if (p := folder / n).exists() else None for n in names
    )
    try:
        data = writer.build_tarball(
            draft, lambda *details: issue_text.render_pack_readme(facts, *details)
        )
        if paths.decision.url and traces and not any(name in draft.files for name in facts.traces):
            # the trace did not fit into the tarball, so the issue must not name it
            facts = dataclasses.replace(facts, traces=())
            _add_issue(facts, draft, missing)
            for name in (n for n in draft.files if n.startswith("issue")):
                files.write_atomically(folder / name, draft.files[name])
            data = writer.build_tarball(
                draft, lambda *details: issue_text.render_pack_readme(facts, *details)
            )
        label, kind = capture.request.target.label, capture.verdict.kind
        name = f"reprokit-{label}-{kind}-{capture.signature.id}.tar.gz"
        paths.pack = writer.write_tarball(data, run.output, name)
    except OSError as problem:
        text = (
            f"it could not be written: {problem.strerror}; free some space, and capture again; the"
            f" run is in {run.path}"
        )
        missing.append(Missing("pack", text))
    paths.trimmed, paths.hidden = draft.trimmed, draft.hidden
    return paths


def add_compile_pages(draft: writer.PackDraft, missing: list[Missing]) -> None:
    """Add the page with what the traces, which are redacted, say about each compile."""
    traces = {
        name.removeprefix("trace/"): data
        for name, data in sorted(draft.files.items())
        if name.startswith("trace/")
    }
    if sum(map(len, traces.values())) > compile_pages.MAX_TRACE_BYTES:
        most = compile_pages.MAX_TRACE_BYTES >> 20
        missing.append(Missing(run_names.COMPILES_FILE, f"the traces have more than {most} MB"))
        return
    try:
        if page := compile_pages.render_compile_pages(traces):
            draft.add_text(run_names.COMPILES_FILE, page)
    except Exception as problem:  # a trace may have any content
        missing.append(Missing(run_names.COMPILES_FILE, f"it could not be made: {problem!r}"))


def _report_head(
    capture: PackInput,
    facts: issue_text.IssueFacts,
    decision: Decision,
    steps: dict[str, Any],
    redactor: Redactor,
) -> ReportHead:
    """Return the redacted head of the report."""
    program = facts.program
    is_proved = isinstance(program, Repro)
    file = run_names.REPRO_FILE if is_proved else run_names.CANDIDATE_FILE
    own_line = users_line.find_users_line(capture.verdict, capture.seen)
    began, _ = report_data.run_times(capture.journals, capture.seen)

    def shown(text: str) -> str:
        return report_head.short_paths(redactor.redact_text(text), facts.folders)

    return {
        "users_line": shown(own_line),
        "compiling": shown(
            users_line.find_compiled_function(capture.journals, capture.verdict, capture.seen)
        ),
        "program": {
            "file": file if program.text else "",
            "text": program.text,
            "about": redactor.redact_text(program.about),
            "why_unproven": (
                "" if isinstance(program, Repro) or capture.verdict.kind == "ok" else program.why
            ),
        },
        "avoids": report_head.ways_to_avoid(steps, capture.seen.eager),
        "advice": redactor.redact_text(advice.advise(capture.verdict, capture.seen)),
        "command": report_head.relative_to_folders(facts.command, facts.folders[:1]),
        "versions": report_head.known_versions({**capture.environment.facts, **facts.environment}),
        "started": report_head.utc_date(began),
        "decision": cast(
            ReportedDecision,
            {**to_json(decision), "form": responsibility.repository_for(facts.verdict)},
        ),
    }


def _with_short_paths(value: Any, folders: Sequence[str]) -> Any:
    """Return a text, or a list of texts, that names files below the folders without them."""
    if isinstance(value, str):
        return report_head.short_paths(value, folders)
    return [report_head.short_paths(row, folders) for row in value]


def _folders_of(capture: PackInput) -> list[str]:
    """Return the working directory of the program, and the folder of its file if it is known."""
    target = capture.request.target
    started = capture.journals.events_of_type(Process)
    cwd = started[0].cwd if started else ""
    words = (target.place, *target.command)
    files_named = (word for word in words if word.startswith("/") and word.endswith(".py"))
    return [cwd, *(str(Path(word).parent) for word in files_named)][:2]


def _add_exports(
    capture: PackInput,
    draft: writer.PackDraft,
    missing: list[Missing],
    run_path: Path,
    redactor: Redactor,
) -> tuple[tuple[str, str], ...]:
    """Add the stacks and the timeline in the formats of other viewers, where there are any.

    Return the name of each file, and what opens it.
    """

    def stacks_file() -> dict[str, Any]:
        dumps = stacks.read_dumps(run_path, report_data.MAX_ROUNDS)
        names = report_data.rank_names(capture.seen)
        return speedscope.speedscope_file(dumps, names, capture.signature.title)

    def timeline_file() -> dict[str, Any]:
        journals, seen = capture.journals, capture.seen
        samples = files.read_text(run_path / run_names.SAMPLES_FILE)
        times = report_data.run_times(journals, seen)
        return trace_events.trace_event_file(journals.by_pid, seen.ranks, samples, *times)

    made = []
    for name, viewer, make in (
        (run_names.SPEEDSCOPE_FILE, "speedscope", stacks_file),
        (run_names.TRACE_EVENTS_FILE, "Perfetto", timeline_file),
    ):
        try:
            if document := make():
                text = json.dumps(redactor.redact_value(document), separators=(",", ":"))
                draft.add_text(name, text + "\n")
                made.append((name, viewer))
        except Exception as problem:  # the journal and the stacks may have any content
            missing.append(Missing(name, f"it could not be made: {problem!r}"))
    return tuple(made)


def _add_issue(
    facts: issue_text.IssueFacts, draft: writer.PackDraft, missing: list[Missing]
) -> Decision | None:
    """Add the texts of the issue. Return the decision with the page to open; None without texts."""
    try:
        issue = issue_text.make_issue(facts)
    except Exception as problem:  # a pack without an issue is better than no pack
        missing.append(Missing(run_names.ISSUE_FILE, f"it could not be rendered: {problem!r}"))
        return None
    draft.add_text(run_names.ISSUE_FILE, issue.joined)
    draft.add_text(run_names.TITLE_FILE, issue.title + "\n")
    draft.add_json(
        run_names.CLAIMS_FILE,
        [{"number": n, **row.to_json()} for n, row in enumerate(issue.claims)],
    )
    for name in ("describe", "error_logs", "versions"):
        draft.add_text(f"issue/{name}.md", getattr(issue, name))
    if issue.decision.url:
        draft.add_text("issue/url.txt", issue.decision.url + "\n")
    return issue.decision


def _facts(
    capture: PackInput,
    known: dict[str, Any],
    program: Repro | Candidate,
    missing: list[Missing],
    ablation: AnyAblation | None,
    redactor: Redactor,
) -> issue_text.IssueFacts:
    journals = capture.journals
    return issue_text.IssueFacts(
        verdict=redactor.redact_value(capture.verdict),
        signature=redactor.redact_value(capture.signature),
        seen=redactor.redact_value(capture.seen),
        known=tuple(capture.known),
        command=redactor.redact_text(capture_command(capture.request, capture.seen.growth)),
        program=program,
        is_simulated=journals.last_event_of_type(Weights).kind == "fake",
        collect_env=redactor.redact_text(capture.environment.collect_env),
        environment={k: v for k, v in known.items() if k not in ("packages", "log_names")},
        variables=known.get("variables", {}),
        configs=redactor.redact_value(
            observation_reader.settings_not_default(journals, capture.environment.torch_defaults)
        ),
        missing=redactor.redact_value(tuple(missing)),
        ablation=ablation,
        depends_on=redactor.redact_value(
            tuple(small.depends_on) if (small := capture.minimized) and small.is_proved else ()
        ),
        conditions=(redactor.redact_value(small.conditions) if small and small.is_proved else None),
        traceback=(
            redactor.redact_text(program.proof.traceback) if isinstance(program, Repro) else ""
        ),
        folders=tuple(map(redactor.redact_text, _folders_of(capture))),
    )
