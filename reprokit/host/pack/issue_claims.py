"""The statements of an issue about the captured run, its program and what is known of it.

Each is a :class:`Claim`, and the templates of public texts print nothing else: no plain text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from typing import Any

from reprokit import __version__
from reprokit.core.experiments.ablation import AnyAblation
from reprokit.core.judge.hangs import hang_causes
from reprokit.core.judge.responsible import responsibility
from reprokit.core.judge.stacks.location import as_sentence, plural
from reprokit.core.records.claims import (
    Check,
    Claim,
    How,
    KnownIssue,
    PackedProgram,
    ThisMachine,
    UsersRun,
    claim,
)
from reprokit.core.records.finding import Identity, Signature, Verdict
from reprokit.core.records.observation import Missing, Observation
from reprokit.core.reduce.project import entry_text
from reprokit.core.shared.contract import run_names
from reprokit.core.triage import issue_title
from reprokit.core.triage.decision import COMMENT, NOTHING, Decision
from reprokit.host.minimize.proofs.proof import Proof
from reprokit.host.minimize.proofs.proven import Candidate, Repro

PASSES_EAGER = Check("passes", {"without_compile": True})
MAX_WAITS = 6
"""Limit of the printed waits of one process for another."""
_ORIGIN = re.compile(r"(?<=lines), cut out of [^;]+")
"""From what a repro was reduced, which only the user wants to know."""


@dataclasses.dataclass(frozen=True)
class Known:
    """The evidence of a claim about a known issue: the decision that names it."""

    about = KnownIssue
    packed_as = run_names.REPORT_DATA_FILE
    decision: Decision


@dataclasses.dataclass(frozen=True)
class Environment:
    """The evidence of a claim about the machine: what its interpreter says."""

    about = ThisMachine
    packed_as = run_names.COLLECT_ENV_FILE


@dataclasses.dataclass(frozen=True)
class Unproved:
    """The evidence of a claim about a program that is no repro: the reason."""

    about = PackedProgram
    packed_as = run_names.MINIMIZE_FILE
    program: Candidate


def title(verdict: Verdict, identity: Identity, seen: Observation, program: str) -> Claim[UsersRun]:
    """Return the title of an issue."""
    text = issue_title.make_issue_title(verdict, identity, seen, program)
    return claim(text, verdict, _failure(verdict))


def what_fails(verdict: Verdict, seen: Observation) -> Claim[UsersRun]:
    """Return what fails, in one sentence."""
    return claim(issue_title.first_sentence(verdict, seen), verdict, _failure(verdict))


def _failure(verdict: Verdict) -> Check:
    return Check(
        "failure",
        {
            "kind": verdict.kind,
            "cause": verdict.cause,
            "phase": verdict.phase,
            "words": [*verdict.evidence, verdict.reason],
        },
    )


def without_compile(proof: Proof | None, seen: Observation) -> list[Claim[Any]]:
    """Return how the program, or else the captured run, ends without torch.compile."""
    if seen.kernel:
        text = "The kernel was compiled alone, by `triton.compile`: torch is not needed."
        return [claim(text, seen)]
    if proof is not None and proof.eager == "passes":
        return [claim("Without `torch.compile` the program passes.", proof, PASSES_EAGER)]
    if proof is not None and proof.eager:
        text = as_sentence(f"Without `torch.compile` the program ends like this: {proof.eager}")
        return [claim(text, proof, Check("fails", {"without_compile": True}))]
    if seen.eager and seen.comparison is None:
        how: How = "passes" if seen.eager == "passes" else "fails"
        checks = [Check(how, {"without_compile": True})] * (seen.eager in ("passes", "fails"))
        return [claim(f"Without `torch.compile`: {_eager(seen)}.", seen, *checks)]
    return []


def depends_on(texts: Sequence[str], proof: Proof | None) -> list[Claim[PackedProgram]]:
    """Return on which values the failure of the repro depends."""
    rows: list[Claim[PackedProgram]] = []
    if proof is None:
        return rows
    for text in texts:
        name = re.search(r"input `([^`]+)`", text)
        checks = [Check("inputs", {"input": name[1]})] if name else []
        rows.append(claim(text, proof, *checks))
    return rows


def _eager(seen: Observation) -> str:
    if seen.eager == "passes" and seen.eager_detail:
        return seen.eager_detail
    outcome = {
        "passes": "it passes",
        "fails": "it fails as well",
        "hangs": "it does not finish either",
    }.get(seen.eager)
    if outcome:
        return outcome
    return "not tried (a command is run only once)" if seen.is_command else "not tried"


def version(collect_env: str) -> list[Claim[ThisMachine]]:
    """Return the torch with which the run failed."""
    found = re.search(r"^PyTorch version: (\S+)", collect_env, re.MULTILINE)
    if found is None:
        return []
    check = Check("version", {"torch": found[1]})
    return [claim(f"It failed with torch {found[1]}.", Environment(), check)]


def no_collect_env(missing: Sequence[Missing]) -> Claim[ThisMachine]:
    """Return why there is no output of torch.utils.collect_env."""
    why = next((m.why for m in missing if "collect_env" in m.what), "it did not run")
    return claim(f"There is no output of `python -m torch.utils.collect_env`: {why}", Environment())


def no_error(seen: Observation) -> Claim[UsersRun]:
    """Return that the run left no text about its failure."""
    return claim("The run wrote no error message.", seen, Check("output", {"is_empty": True}))


@dataclasses.dataclass(frozen=True)
class LongAnswer:
    """An answer of several lines, with its question."""

    question: Claim[UsersRun]
    answer: str


def long_answers(seen: Observation) -> list[LongAnswer]:
    """Return the answers that are output."""
    return [
        LongAnswer(claim(f"{a.question}:", seen), a.answer)
        for a in seen.answers
        if "\n" in a.answer
    ]


def about_program(program: Repro | Candidate, is_simulated: bool) -> Claim[PackedProgram]:
    """Return what the repro is, or why there is none."""
    if isinstance(program, Repro):
        fake = "; fake tensors, nothing is executed" if is_simulated else ""
        checks = [Check("fails")]
        if re.search(r"\d lines?\b", program.about):
            checks.append(Check("lines", {"lines": len(program.text.splitlines())}))
        checks += [PASSES_EAGER] if program.proof.eager == "passes" else []
        needs = ""
        if libraries := entry_text.libraries_of(program.text):
            needs = f"; it needs {', '.join(libraries)} besides torch"
            checks.append(Check("imports", {"libraries": libraries}))
        about = _ORIGIN.sub("", program.about)
        return claim(f"{about}{fake}{needs}", program.proof, *checks)
    text = f"There is no proven repro: {program.why.rstrip('.')}."
    return claim(text, Unproved(program), Check("lines", {"lines": 0}))


def about_candidate(program: Candidate) -> list[Claim[PackedProgram]]:
    """Return what the unproved program of the pack is; empty without one."""
    text = f"`{run_names.CANDIDATE_FILE}` in the pack is {program.about}."
    check = Check("candidate", {"origin": program.about})
    return [claim(text, Unproved(program), check)] if program.text else []


def banner(decision: Decision, verdict: Verdict) -> list[Claim[Any]]:
    """Return what to do with the issue instead of filing it, or before it."""
    if decision.action == COMMENT:
        known = Known(decision)
        check = Check("issue", {"issue": decision.issue, "title": decision.why})
        text = (
            f"{decision.issue}, {decision.why}. Please comment there instead of opening an issue."
        )
        return [claim("This failure is known: " + text, known, check), *_avoids(decision, "it")]
    if decision.action == NOTHING:
        is_own = verdict.responsible == "user" and verdict.kind != "error-in-eager"
        if is_own:
            text = f"This is not a bug of PyTorch: {decision.why}. Please do not file it as one."
            return [claim(text, verdict, *_responsible(verdict))]
        text = f"Please do not file this: {decision.why}."
        return [claim(text, verdict, *_responsible(verdict))]
    if decision.issue:
        text = f"Please compare it with {decision.issue} first, which is probably the same failure."
        check = Check("issue", {"issue": decision.issue})
        return [claim(text, Known(decision), check), *_avoids(decision, "that one")]
    return []


def _avoids(decision: Decision, what: str) -> list[Claim[KnownIssue]]:
    if not decision.avoids:
        return []
    check = Check("passes", {"of": "issue", "issue": decision.issue, "lines": decision.avoids})
    return [claim(f"To avoid {what}: `{decision.avoids}`", Known(decision), check)]


def ablation_of(ablation: AnyAblation | None) -> list[Claim[UsersRun] | Claim[PackedProgram]]:
    """Return with which backends the program fails; empty without an ablation."""
    return [ablation.claim] if ablation is not None and ablation.sentence else []


def settings(configs: dict[str, dict[str, str]]) -> list[Claim[ThisMachine]]:
    """Return a line for each setting of the run that is not torch's default."""
    return [
        claim(
            f"{module}.{key} = {value}",
            Environment(),
            Check("settings", {"module": module, "key": key, "value": value}),
        )
        for module, rows in sorted(configs.items())
        for key, value in sorted(rows.items())
    ]


def details(verdict: Verdict, signature: Signature, seen: Observation) -> list[Claim[UsersRun]]:
    """Return how the failure was found, the most useful first."""
    name = signature.title.replace("`", "'")
    digest = Check("digest", {"algorithm": signature.algorithm, "title": signature.title})
    rows = [
        claim(
            f"signature `{signature.id}` (reprokit {__version__}, algorithm"
            f" {signature.algorithm}): `{name}`",
            signature,
            digest,
        )
    ]
    if explain := hang_causes.explain_cause(verdict):
        rows.append(claim(f"cause `{verdict.cause}`: {explain}", verdict, _failure(verdict)))
    if responsibility.why_not_filed(verdict) and verdict.responsible:
        text = "; ".join([f"responsible: {verdict.responsible}", *verdict.responsible_because])
        rows.append(claim(text, verdict, *_responsible(verdict)))
    rows += [claim(f"simulated device: {text}", verdict) for text in verdict.simulated[:1]]
    rows += [claim(f"also {row}", verdict) for row in hang_causes.explain_also(verdict)]
    rows += [_at_work(verdict, name, value) for name, value in verdict.work.items()]
    rows += [claim(row, verdict, *_checks_of(row)) for row in verdict.path[:MAX_WAITS]]
    answers = [f"{a.question}: {a.answer}" for a in seen.answers if "\n" not in a.answer]
    rows += [claim(row, seen, *_checks_of(row)) for row in answers]
    is_recorded = seen.graphs or seen.recompiled or seen.breaks or not seen.is_attached
    rows += [*([_graphs(seen)] if is_recorded else []), _cost(seen)]
    rows += [claim(row, verdict, *_checks_of(row)) for row in verdict.evidence]
    rows += [claim(str(row), seen, *_checks_of(str(row))) for row in seen.remarks]
    return rows + [
        claim(f"different from the real device: {row}", verdict) for row in verdict.simulated[1:]
    ]


def _responsible(verdict: Verdict) -> list[Check]:
    place = [Check("own code", {"place": verdict.responsible_place})]
    eager = [Check("fails", {"without_compile": True})] * (verdict.kind == "error-in-eager")
    checks = [*place * (verdict.responsible == "user" and bool(place[0].what["place"])), *eager]
    return checks or [_failure(verdict)]


def _at_work(verdict: Verdict, name: str, value: str) -> Claim[UsersRun]:
    checks = [Check("own code", {"place": value})] if name == "line" else []
    if name == "direction":
        checks.append(Check("stack", {"direction": value}))
    elif name == "op":
        checks.append(Check("operator", {"operator": value}))
    elif name == "graph":
        checks.append(Check("count", {"graph": value}))
    elif name != "line":
        checks.append(Check("logs", {"words": [value]}))
    return claim(f"{name} at work: `{value}`", verdict, *checks)


def _graphs(seen: Observation) -> Claim[UsersRun]:
    parts, counts = [], {}
    for level, about in (("dynamo", "Dynamo"), ("export", "exported"), ("aten", "ATen")):
        graphs = [g for g in seen.graphs if g.level == level]
        if graphs:
            counts[level] = [len(graphs), sum(g.nodes for g in graphs)]
            nodes = plural(counts[level][1], "node")
            parts.append(f"{plural(len(graphs), f'{about} graph')} with {nodes}")
    text = ", ".join(parts) or "no graph was recorded"
    recompiles, breaks = sum(r.count for r in seen.recompiled), sum(b.count for b in seen.breaks)
    text += f", {plural(recompiles, 'recompile')}" if recompiles else ""
    text += f", {plural(breaks, 'graph break')}" if breaks else ""
    return claim(text, seen, Check("count", {**counts, "recompiles": recompiles, "breaks": breaks}))


def _cost(seen: Observation) -> Claim[UsersRun]:
    peak = seen.peak_rss_bytes
    return claim(
        f"{seen.seconds:.1f} s, {seen.cpu_s:.1f} CPU-seconds, {peak / 1e6:.0f} MB at most",
        seen,
        Check("cost", {"seconds": seen.seconds, "cpu_s": seen.cpu_s, "peak_rss_bytes": peak}),
    )


_ROWS: Sequence[tuple[How, str]] = (
    ("output", r"(?:message|stderr|guard that failed): (?P<words>.*)"),
    ("output", r"C\+\+ exception: (?:[\w:]+: )?(?P<words>.*)"),
    ("output", r"the compiler warned[^:]*: (?P<words>.*)"),
    ("output", r"the program then ended with (?P<words>.*)"),
    ("output", r"exception chain: (?P<names>.*)"),
    ("output", r"exit status (?P<status>-?\d+)"),
    ("output", r"killed by (?P<signal>SIG\w+)"),
    ("stack", r"phase \S+ from frame `?(?P<frame>[^`]+)`?"),
    ("stack", r"no frame of the compiler on (?P<no_compiler>)"),
    ("stack", r"over \d+ dumps nothing moved(?P<still>)"),
    ("stack", r"over \d+ dumps .*these frames moved: (?P<moved>.*)"),
    ("stack", r"no progress for (?P<quiet_s>[\d.]+) s"),
    ("passes", r"with backend=\"(?P<backend>\w+)\": it passes"),
    ("values", r"(?P<name>[\w\[\]. `]+): (?:values|dtype|shape)\b.*eager gives"),
    ("values", r"the float64 run shows|\d+ more results? differs?"),
    ("sanitizers", r"AddressSanitizer: (?P<error>[\w-]+)"),
    ("sanitizers", r"generated C\+\+: (?P<code>.*)"),
    ("own code", r"operator \S+, called at (?P<place>.*)"),
    (
        "operator",
        r"the first graph that departs .* operator in it is `?(?P<operator>[^`, ]+)",
    ),
    ("operator", r"Inductor worked on `(?P<operator>\w+)`"),
    ("source", r"(?P<place>.+?\.py:\d+) in (?P<function>[\w.<>]+): (?P<code>.*)"),
    ("output", r"(?P<place>.+\.py:\d+): (?P<words>.*?)(?:, \d+ times)?$"),
    ("logs", r"so far "),
)
"""The forms of evidence, and how each is checked."""


def _checks_of(row: str) -> Iterable[Check]:
    for how, pattern in _ROWS:
        if match := re.match(pattern, row):
            return [Check(how, match.groupdict())]
    return []


def who_is_responsible(verdict: Verdict) -> list[Claim[Any]]:
    """Return who is responsible, and why the failure is not filed, for a comment."""
    who = verdict.responsible or "unknown"
    part = verdict.phase or "no phase of the compiler"
    rows = [claim(f"Responsible: {who}, in {part}.", verdict, *_responsible(verdict))]
    if why := responsibility.why_not_filed(verdict):
        is_known = who != "unknown"
        text = f"Not a bug of PyTorch: {why}." if is_known else as_sentence(why)
        rows.append(claim(text, verdict, *_responsible(verdict)))
    return rows
