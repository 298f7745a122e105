"""The line: target -> run -> judge -> sign -> pack -> render, readable on one screen.

Each step takes one record and gives one. A step that cannot do its work says why in ``missing`` and the line
goes on, so that a pack is always left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..core import frames
from ..core.records import SCHEMA, BadInput, Link, Missing, Observation, Raised, Signature, Verdict, to_json
from ..core.redact import Redactor
from ..core.signature import sign
from ..core.verdict import judge
from . import environment, files, observe, pack, private, render, repro, run, rundir
from .launch import Request
from .run import Outcome

EAGER_KINDS = frozenset({"exception", "crash", "hang", "slow-compile", "oom"})
"""Verdicts that are only a compiler's fault if the target works without it."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM})

Say = Callable[[str], None]


@dataclass
class Captured:
    """What a capture leaves: the records, and where the files lie."""

    verdict: Verdict
    signature: Signature
    seen: Observation
    run_path: Path
    pack_path: Path | None = None
    issue_path: Path | None = None
    repro_path: Path | None = None
    url: str = ""
    weights: str = ""
    missing: list[Missing] = field(default_factory=list)
    trimmed: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The object that ``--json`` prints; later versions only add keys."""
        verdict, signature = self.verdict, self.signature
        return {
            "schema": SCHEMA,
            "verdict": {"kind": verdict.kind, "phase": verdict.phase, "cause": verdict.cause, "reason": verdict.reason},
            "signature": {"id": signature.id, "title": signature.title, "algorithm": signature.algorithm},
            "run_dir": str(self.run_path),
            "pack": str(self.pack_path) if self.pack_path else None,
            "issue": str(self.issue_path) if self.issue_path else None,
            "repro": str(self.repro_path) if self.repro_path else None,
            "missing": [to_json(m) for m in self.missing],
            "seconds": self.seen.seconds,
            "peak_rss_bytes": self.seen.peak_rss_bytes,
        }


def capture(
    request: Request,
    output: Path | None,
    say: Say,
    show: run.Show | None = None,
    echo: tuple[IO[bytes], IO[bytes]] | None = None,
) -> Captured:
    """Run the whole line; raises BadInput only for what the user must mend."""
    place = rundir.create(output, request.target.label)
    try:
        say(f"running {request.target.words} in {place.path}")
        try:
            outcome = run.run(request, place.path, show, echo)
        except OSError as problem:
            if problem.errno not in NO_ROOM:
                raise
            raise BadInput(
                f"cannot write in {place.path}: {problem.strerror}; free some space, or name another --output-dir"
            ) from problem
        journals = observe.read_journals(place.path)
        refuse_bad_target(journals, place.path)
        seen = observe.observe(request, outcome, place.path, journals)
        verdict = judge(seen)
        if verdict.kind in EAGER_KINDS and request.target.kind != "command" and not outcome.is_interrupted:
            say(f"{verdict.kind}; running once more without torch.compile")
            seen = check_eager(request, seen, place.path, show)
            verdict = judge(seen)
        signature = sign(verdict, seen)
        captured = Captured(
            verdict,
            signature,
            seen,
            place.path,
            missing=[*outcome.missing, *observe.missing_of(journals, place.path, request)],
        )
        captured.weights = str(journals.last("weights").get("why") or "") if request.target.kind == "zoo" else ""
        say("collecting the environment")
        found = collect_environment(request, journals, place.path, captured, outcome)
        say("packing")
        make_pack(request, captured, found, journals, place)
        return captured
    finally:
        place.release()


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


def check_eager(request: Request, seen: Observation, run_path: Path, show: run.Show | None) -> Observation:
    """Run the same target without compile, in a child of its own: a bug of the compiler needs a healthy eager run."""
    folder = run_path / "eager"
    rundir.make_folders(folder)
    plain = dataclasses.replace(request, compile_it=False)
    outcome = run.run(plain, folder, show)
    journals = observe.read_journals(folder)
    eager = observe.observe(plain, outcome, folder, journals)
    if outcome.is_interrupted:
        return dataclasses.replace(seen, eager_detail="the run without torch.compile was interrupted")
    if outcome.is_timed_out:
        return dataclasses.replace(
            seen, eager="hangs", eager_detail=f"no end within {request.deadline_s:.0f} s without torch.compile"
        )
    if eager.has_finished and eager.exit_status == 0:
        return dataclasses.replace(seen, eager="passes", eager_detail=f"it passed in {outcome.seconds:.1f} s")
    detail = _eager_detail(eager)
    return dataclasses.replace(seen, eager="fails", eager_detail=detail, raised=eager.raised or seen.raised)


def collect_environment(
    request: Request, journals: observe.Journals, run_path: Path, captured: Captured, outcome: Outcome
) -> environment.Environment:
    """Ask the machine and the interpreter that the target used."""
    python: str | None = request.python
    if request.target.kind == "command":
        python = journals.last("process").get("executable")
    if outcome.is_interrupted:
        captured.missing.append(Missing("environment: Python and packages", "not asked after an interrupt"))
        python = None
    try:
        found = environment.collect(python, run_path)
    except KeyboardInterrupt:
        captured.missing.append(Missing("environment", "interrupted"))
        return environment.Environment({}, "", ())
    captured.missing += (
        found.missing if not outcome.is_interrupted else [m for m in found.missing if "Python" not in m.what]
    )
    return found


def make_pack(
    request: Request,
    captured: Captured,
    found: environment.Environment,
    journals: observe.Journals,
    place: rundir.RunDir,
) -> None:
    """Redact, render and pack; whatever fails is told, and what was made stays."""
    redactor = Redactor(private.gather())
    verdict, signature = captured.verdict, captured.signature
    draft = pack.gather(place.path, redactor)
    captured.missing += draft.missing
    script, about, missing = repro.make(request, captured.seen, journals, place.path)
    captured.missing += missing
    command = command_line(request)
    configs = journals.last("config").get("changed") or {}
    seen = private.redacted(captured.seen, redactor)
    facts = render.Facts(
        verdict=private.redacted(verdict, redactor),
        signature=private.redacted(signature, redactor),
        seen=seen,
        command=redactor.text(command),
        repro=redactor.text(script),
        repro_about=about,
        is_simulated=journals.last("weights").get("kind") == "fake",
        collect_env=redactor.text(found.collect_env),
        environment=private.redacted(
            {k: v for k, v in found.facts.items() if k not in ("packages", "log_names")}, redactor
        ),
        variables=private.redacted(found.facts.get("variables", {}), redactor),
        configs=private.redacted(configs, redactor),
        missing=tuple(private.redacted(captured.missing, redactor)),
    )
    try:
        issue = render.issue(facts)
        captured.url = issue.url
        for name, text in (
            ("issue.md", issue.joined),
            ("issue/describe.md", issue.describe),
            ("issue/error_logs.md", issue.error_logs),
            ("issue/versions.md", issue.versions),
            ("issue/url.txt", issue.url + "\n"),
        ):
            draft.add_text(name, text)
    except Exception as problem:  # a pack without an issue is better than none
        captured.missing.append(Missing("issue.md", f"rendering failed: {problem!r}"))
    if script:
        draft.add_text("repro.py", facts.repro)
    draft.add_text("command.txt", facts.command + "\n")
    draft.add_text("collect_env.txt", facts.collect_env)
    draft.add_json("verdict.json", to_json(facts.verdict))
    draft.add_json("signature.json", to_json(facts.signature))
    draft.add_json("observation.json", to_json(seen))
    draft.add_json(
        "environment.json",
        {
            **private.redacted(found.facts, redactor),
            "changed_in_target": facts.configs,
            "missing": to_json(facts.missing),
        },
    )
    draft.add_text("run.json", redactor.text(files.read_text(place.path / "run.json")))
    for name, value in (("observation.json", captured.seen), ("verdict.json", verdict), ("signature.json", signature)):
        with contextlib.suppress(OSError):
            files.write_json(place.path / name, to_json(value))
    folder = place.path / "pack"
    pack.unpack_beside(draft, folder)
    captured.issue_path = folder / "issue.md" if (folder / "issue.md").exists() else None
    captured.repro_path = folder / "repro.py" if (folder / "repro.py").exists() else None
    try:
        data = pack.build(draft, lambda contents, trimmed: render.pack_readme(facts, contents, trimmed))
        captured.pack_path = pack.write(
            data, place.output, f"reprokit-{request.target.label}-{verdict.kind}-{signature.id}.tar.gz"
        )
    except OSError as problem:
        captured.missing.append(
            Missing(
                "pack",
                f"it could not be written: {problem.strerror or problem}; free some space and pack again from {place.path}",
            )
        )
    captured.trimmed = draft.trimmed


def command_line(request: Request) -> str:
    """The command that makes this capture again."""
    words = ["reprokit", "capture"]
    for name, value in (*request.knobs.items(), *request.compile.items()):
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
    if request.weights != "auto":
        words += ["--weights", request.weights]
    target = request.target
    return (
        shlex.join(words) + " " + target.words
        if target.kind == "command"
        else shlex.join([*words, "--model", target.words])
    )


def _eager_detail(eager: Observation) -> str:
    raised: Raised | None = eager.raised
    if raised is not None:
        root: Link = frames.root(raised)
        line = next((row for row in root.message.splitlines() if row.strip()), "")
        return f"{root.type}: {line.strip()[:200]}"
    if eager.exit_status is not None and eager.exit_status < 0:
        return f"it died of signal {-eager.exit_status}"
    return f"it ended with exit status {eager.exit_status}"
