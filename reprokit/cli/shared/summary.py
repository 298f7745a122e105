"""The end of a capture in at most ten lines: what happened, where, whose it is, and what to do.

``-v`` prints everything else, which is also in ``reprokit show`` and in the report.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from reprokit.cli.shared.terminal import current_folder
from reprokit.core.experiments.ablation import AnyAblation, PartAblation
from reprokit.core.judge.hangs.hang_causes import EXPLAIN
from reprokit.core.judge.same_failure import PASSES
from reprokit.core.judge.stacks.location import plural
from reprokit.core.judge.stacks.phases import COMPILE_PHASES
from reprokit.core.records.finding import Verdict
from reprokit.core.records.verdict_kinds import kind_named
from reprokit.core.shared.contract.run_names import REPRO_FILE
from reprokit.core.triage import known_failures
from reprokit.core.triage.decision import NEW_ISSUE, NOTHING
from reprokit.host.minimize.candidate_text import count_code_lines
from reprokit.host.report import report_head
from reprokit.host.report.headline import MAX_COLUMNS, cut_at_word, headline

if TYPE_CHECKING:
    from reprokit.host.minimize.proofs.proven import Repro
    from reprokit.host.pipeline.capture_result import CaptureResult

MAX_LINES = 10
"""Limit of the lines, each of at most ``headline.MAX_COLUMNS`` characters. Paths of files that
reprokit wrote are never cut.
"""
MAX_HEAD, MAX_WAITS = 2, 4
"""Limit of the threads that wait for each other."""
MAX_NOTES = 2
"""Limit of the notes about a program that finished."""
NAME_COLUMNS = 11
TEXT_COLUMNS = MAX_COLUMNS - NAME_COLUMNS
PARTIES = {
    "user": "your program",
    "driver": "the GPU driver",
    "machine": "this machine",
    "unknown": "not known",
}
"""The words for the parties that are no project."""
MAX_NAMED = 2
HOW = {
    known_failures.SAME: "",
    known_failures.LIKELY: "probably ",
    known_failures.SIMILAR: "similar to ",
    known_failures.FAMILY: "similar to ",
}
_PLACE_AT_END = re.compile(r"(?P<place> at \S+:\d+)(?: in [\w.<>]+)?$")
_OWN_PLACE = re.compile(r"(torch called \S+) in your own code at .+?:\d+(?=, and it)")
_PLACE = re.compile(r"(.+?)(:\d+(?: in \S+?)?(?:: .*)?)$", re.DOTALL)

Row = tuple[str, str]
"""A name, and a text. The name is empty for the verdict, and where a text goes on."""


def summary_rows(captured: CaptureResult) -> list[Row]:
    """Return the lines of a summary, each cut at a word."""
    verdict = captured.verdict
    head, rest = headline(verdict)
    rows: list[Row] = [("", head)]
    is_brief = verdict.kind in ("unknown", "error-in-eager") and captured.pack_path is None
    if verdict.kind == "ok" or is_brief:
        unseen = [row.why for row in captured.missing if row.what == "journal"]
        evidence = [captured.advice] if captured.advice else unseen or verdict.evidence
        if verdict.cause == "idle":
            return [*rows, *_notes_of_idle(rest), *_written(captured)]
        notes = [*filter(None, [rest]), *evidence][:MAX_NOTES]
        return [*rows, *(_cut_row(("note", note)) for note in notes), *_written(captured)]
    if verdict.kind == "hang":
        rows += _waits(verdict)
    elif rest:
        rows.append(_cut_row(("details", rest)))
    is_outside = verdict.kind in ("hang", "unknown", "error-in-eager")
    is_outside &= verdict.phase in (None, "eager")
    if captured.users_line or (captured.compiling and not is_outside):
        rows.append(_place_row(captured))
    if party := _party(captured):
        rows.append(_cut_row(("caused by", party)))
    rows += map(_cut_row, _known(captured))
    if captured.repro is not None and captured.repro_path is not None:
        rows.append(("repro", f"{_about_repro(captured.repro)}: {_shown(captured.repro_path)}"))
    elif captured.unproven and verdict.kind not in ("unknown", "error-in-eager"):
        rows.append(_cut_row(("no repro", captured.unproven)))
    if verdict.kind == "unknown":  # what is missing may be the reason
        rows_missing = (r for r in captured.missing if r.what not in (REPRO_FILE, "minimization"))
        missing = [f"{row.what}: {row.why}" for row in rows_missing]
        rows += [_cut_row(("missing", text)) for text in missing[:1]]
    rows += _written(captured)
    if command := next_command(captured):
        rows.append(("next", command))
    return rows


def _notes_of_idle(text: str) -> list[Row]:
    """Return what the threads or tasks of an idle program wait for."""
    clauses = [clause for clause in text.removesuffix(".").split("; ") if clause][:MAX_WAITS]
    return [
        ("" if number else "note", _with_place(clause)) for number, clause in enumerate(clauses)
    ]


def _written(captured: CaptureResult) -> list[Row]:
    """Return the report, or why there is no pack."""
    if captured.report_path is not None:
        return [("report", _shown(captured.report_path))]
    whys = [row.why for row in captured.missing if row.what == "pack"]
    return [_cut_row(("no pack", why)) for why in whys[:1]]


def next_command(captured: CaptureResult) -> str:
    """Return the one command that helps most after this capture; empty for a healthy run."""
    if captured.verdict.kind == "ok" or captured.pack_path is None:
        return ""
    if captured.decision.action != NOTHING:
        is_minimizable = kind_named(captured.verdict.kind).is_minimizable
        if captured.unproven and not captured.repro_path and is_minimizable:
            return f"reprokit minimize {shlex.quote(_shown(captured.run_path))} --budget 900"
        return f"reprokit issue {shlex.quote(_shown(captured.pack_path))}"
    return f"reprokit show {shlex.quote(_shown(captured.pack_path))}"


def _cut_row(row: Row) -> Row:
    name, text = row
    return name, cut_at_word(_with_short_paths(text), TEXT_COLUMNS)


def _waits(verdict: Verdict) -> list[Row]:
    """Return the cause of a hang, and who waits for whom where that is more."""
    cause = verdict.cause or "unknown"
    first, *more = (verdict.detail or EXPLAIN.get(cause, "")).split("; ")
    if cause == "lock-deadlock" and " holds " in first:
        first, more = "threads wait for each other's locks", [first, *more]
    steps = [step for step in verdict.path if step not in verdict.detail]
    more = more or steps[:1]
    head = textwrap.wrap(f"{cause}: {first}" if first else cause, TEXT_COLUMNS)
    if len(head) > MAX_HEAD:
        head = [head[0], cut_at_word(" ".join(head[1:]), TEXT_COLUMNS)]
    texts = [*head, *map(_with_place, more)]
    return [("" if number else "waits", text) for number, text in enumerate(texts[:MAX_WAITS])]


def _with_place(text: str) -> str:
    """Cut a clause, but not the file and the line at its end."""
    text = _with_short_paths(text)
    if len(text) <= TEXT_COLUMNS or not (end := _PLACE_AT_END.search(text)):
        return cut_at_word(text, TEXT_COLUMNS)
    words, place = text[: end.start()], end["place"]
    if len(words + place) <= TEXT_COLUMNS:
        return words + place
    return f"{cut_at_word(words, TEXT_COLUMNS - len(place) - 1)} {place.strip()}"


def _party(captured: CaptureResult) -> str:
    """Return who is responsible, and the evidence; empty if neither is known."""
    verdict = captured.verdict
    party = PARTIES.get(verdict.responsible, verdict.responsible)
    because = next(iter(verdict.responsible_because), "")
    if because == verdict.reason:  # the first line says it
        # without torch.compile, nothing recompiles
        says_more = verdict.kind not in ("error-in-eager", "recompile-limit", "recompile-storm")
        because = _by_ablation(captured.ablation) if says_more else ""
    if not because and verdict.responsible == "unknown":
        return ""
    # the line of the user is a line of its own
    because = _OWN_PLACE.sub(r"\1", because)
    return f"{party}: {because}" if because else party


def _by_ablation(ablation: AnyAblation | None) -> str:
    """Return what the ablation says about the part that fails; empty if it found none."""
    if ablation is None or ablation.first_failing is None:
        return ""
    passing = [s.name for s in ablation.steps if s.group == "backends" and s.answer == PASSES]
    passes = f" and passes with {passing[-1]}" if passing else ""
    it = f"{ablation.it[:1].lower()}{ablation.it[1:]}"
    return ablation.blamed or f"{it} fails with {ablation.first_failing.name}{passes}"


def _known(captured: CaptureResult) -> list[Row]:
    """Return the known failure that is most like this one, and what avoids the failure."""
    matches = captured.known()
    avoids = ""
    rows: list[Row] = []
    if matches:
        best, entry = matches[0], matches[0].entry
        about = "; ".join(filter(None, (entry.state.replace("unknown", ""), entry.versions)))
        issues = known_failures.issues_of_best(matches)
        text = f"{HOW[best.how]}{entry.issue}: {entry.title} ({about})"
        if len(issues) > 1 and best.shared:
            more = f" and {len(issues) - MAX_NAMED} more" if len(issues) > MAX_NAMED else ""
            named = ", ".join(issues[:MAX_NAMED]) + more
            is_family = best.how == known_failures.FAMILY
            lead = f"one of a family ({named})" if is_family else f"{HOW[best.how]}{named}"
            text = f"{lead}: {best.shared[0]}"
        rows.append(("known", text))
        if best.how not in known_failures.MAYBE:
            avoids = "; ".join(entry.workaround.splitlines())
    elif captured.decision.action == NEW_ISSUE:
        rows.append(("known", "no: the catalogue has no failure that is like it"))
    steps = captured.ablation.to_json() if captured.ablation else {}
    ways = report_head.ways_to_avoid(steps, "")
    ways = [way for way in ways if way != report_head.WITHOUT_COMPILE]
    if avoids:
        rows.append(("avoid it", avoids))
    elif ways:
        note = " (tried on a part of it)" * isinstance(captured.ablation, PartAblation)
        both = " or ".join(ways[:2]) + note
        rows.append(("avoid it", both if len(both) <= TEXT_COLUMNS else ways[0] + note))
    elif advice := captured.advice:
        rows.append(("avoid it", f"{advice} (not tried)"))
    return rows


def _about_repro(repro: Repro) -> str:
    proof, lines = repro.proof, count_code_lines(repro.text)
    return f"{plural(lines, 'line')}, fails in {proof.hits} of {proof.runs} fresh runs"


def _place_row(captured: CaptureResult) -> Row:
    """Return the line of the user, in which only its text is cut, or the folders of its file."""
    if not captured.users_line:
        function, _, file = captured.compiling.partition(" in ")
        room = TEXT_COLUMNS - len(f"{function} in ")
        is_compiling = captured.verdict.phase in COMPILE_PHASES
        text = cut_at_word(f"{function} in {_shorter(file, room)}", TEXT_COLUMNS)
        return "compiling" if is_compiling else "function", text
    match = _PLACE.match(captured.users_line)
    file, rest = match.groups() if match else (captured.users_line, "")
    place = rest.partition(": ")[0]
    shown = _shorter(file, TEXT_COLUMNS - len(place)) + rest
    return "your line", cut_at_word(shown, TEXT_COLUMNS)


def _shorter(file: str, columns: int) -> str:
    """Return the path of a file, without its first folders if it is longer than ``columns``."""
    file = _with_short_paths(file)
    parts = Path(file).parts
    shorter = [file, "/".join(("...", *parts[-2:])), "/".join(("...", *parts[-1:]))]
    return next((text for text in shorter if len(text) <= columns), shorter[-1])


def _with_short_paths(text: str) -> str:
    """Return a text that names files below the current folder without it."""
    return report_head.short_paths(text, [str(current_folder() or "")])


def _shown(path: Path) -> str:
    """Return a path relative to the current folder if it is below it, because that is shorter."""
    folder = current_folder()
    if folder is None or not path.is_relative_to(folder):
        return str(path)
    shown = str(path.relative_to(folder))
    return f"./{shown}" if shown.startswith("-") else shown  # and not an option
