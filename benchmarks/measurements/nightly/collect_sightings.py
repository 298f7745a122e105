"""Collect sightings of known bugs for grouping: several models, sizes, modes, versions of torch.

python -m benchmarks run collect_sightings [--only CASE ...] [--python PYTHON] [--few]
                                           [--output FILE] [--rejected FILE] [--keep FOLDER]

Each sighting is one capture of a factory in benchmarks/cases/known_bugs. A run that shows the bug
adds one JSON line to --output; the kind of the verdict and the message decide, never the signature.
A run that shows something else adds its line to --rejected. Runs that have a line are not repeated.
PYTHON is the interpreter that has the torch to be tried.

The keys of a line: label (the true bug), target, settings, torch, kind, message (of the innermost
exception, or what the run reports), top3 (the innermost frames), reason, and evidence (what the
signature is made of, see benchmarks/sighting_evidence.py).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reprokit.core.judge.stacks import evidence
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.recent_dumps import only_recent
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.dumps import Frame, Raised
from reprokit.core.records.observation import Observation
from reprokit.host.pipeline.pipeline import JUDGE, reopen_state
from reprokit.host.pipeline.state import Callbacks, StudyTools
from reprokit.host.pipeline.step_runner import follow_steps
from reprokit.host.run import run_directory

from ...cases.sighting_cases import CASES, Case, Variant, variants_of
from ...harness import (
    CASES as CASES_FOLDER,
)
from ...harness import DATA, BadInput, ReprokitResult, quiet_environ, run_child, run_reprokit
from ...measurement import Measurement, add_only_option
from ...results import Column, Row
from ...sighting_evidence import evidence_of, sign_evidence

KNOWN_BUGS = CASES_FOLDER / "known_bugs"
OPTIONS = ("--no-minimize", "--no-trace", "--stall", "20")
DEADLINE = ("--timeout", "90")
MAX_MESSAGE_CHARS = 2_000
MAX_REASON_CHARS = 400
COLUMNS = (
    Column("case", "case"),
    Column("size", "size"),
    Column("host", "host"),
    Column("options", "options"),
    Column("torch", "torch"),
    Column("is_shown", "shows the bug"),
    Column("signature", "signature"),
)
_PATHS = (
    (re.compile(r"/[^\s'\",;:()]*/site-packages/"), "<site-packages>/"),
    (re.compile(r"/[^\s'\",;:()]*/(include/python3)"), r"<python>/\1"),
    (
        re.compile(
            r"(?:(?<=-[LI])|(?<![\w.>/]))/(?:tmp|var|home|root|work|Users)/(?:[^\s'\",;:()]*/)?"
        ),
        "<folder>/",
    ),
)


def factory_target(name: str, case: Case) -> str:
    """Return the target of a case, relative to the folder ``known_bugs``."""
    factory = case.factory or name
    for path in sorted(KNOWN_BUGS.glob("*.py")):
        if f"\ndef {factory}(" in path.read_text():
            return f"{path.name}:{factory}"
    raise BadInput(f"benchmarks/cases/known_bugs has no factory {factory}")


def settings_of(case: Case, variant: Variant) -> dict[str, Any]:
    """Return the settings of a run, as a line has them."""
    options = [o for o in (*case.options, *variant.options) if o != "--no-compare"]
    return {"size": variant.size, "host": variant.host, "options": options}


def run_key(target: str, settings: Mapping[str, Any], torch: str) -> str:
    """Return what makes two runs the same experiment; the file of the factory does not count."""
    return json.dumps([target.rpartition(":")[2], settings, torch], sort_keys=True)


def capture_variant(
    name: str, case: Case, variant: Variant, python: str, folder: Path
) -> ReprokitResult:
    """Capture one run of a case."""
    return run_reprokit(
        "capture",
        *OPTIONS,
        f"{KNOWN_BUGS}/{factory_target(name, case)}",
        "--python",
        python,
        "--set",
        f"size={variant.size}",
        "--set",
        f"host={variant.host}",
        "--output-dir",
        folder,
        # a second run names the operator of a crash; of a hang it adds nothing to the identity
        *(() if "crash" in case.kinds else ("--no-escalate",)),
        *(() if "--timeout" in case.options else DEADLINE),
        *(() if "--ablate" in case.options else ("--no-ablate",)),
        *case.options,
        *variant.options,
        environ=quiet_environ({"BUG": case.bug} if case.bug else None),
    )


def read_observation(run_path: Path) -> Observation:
    """Return the observation of a run directory."""
    run = run_directory.reopen_run_directory(run_path)
    try:
        state = reopen_state(run, Callbacks(lambda text: None), StudyTools())
        return follow_steps(state, JUDGE).seen
    finally:
        run.release_lock()


def innermost_exception(raised: Raised | None) -> tuple[str, tuple[Frame, ...]]:
    """Return the message of the innermost exception that has one of its own, or its type, and the
    frames nearest to it.
    """
    if raised is None:
        return "", ()
    root = fr.root_cause(raised)
    inward = raised.chain[: raised.chain.index(root) + 1]
    frames = next((link.frames for link in reversed(inward) if link.frames), ())
    return root.message or root.type, frames


def message_and_frames(kind: str, seen: Observation) -> tuple[str, tuple[Frame, ...]]:
    """Return the exact message of a failure and its frames, to which only the rule for names of
    files is applied.
    """
    if kind == "crash":
        fault = evidence.fatal_fault(seen)
        headline = (fault.headline if fault else "") or next((f.headline for f in seen.faults), "")
        frames = fr.normalise_frames(fault.frames) if fault else ()
        return fr.parse_terminate(seen.stderr_tail) or headline, frames
    if kind in ("hang", "slow-compile"):
        return "", fr.stable_part(evidence.main_stacks(only_recent(seen)))
    if kind == "wrong-result" and seen.comparison:
        return str(seen.comparison.wrong[0]), ()
    if kind in ("recompile-limit", "recompile-storm") and seen.recompiled:
        return seen.recompiled[0].changes, ()
    message, frames = innermost_exception(evidence.blamed_exception(seen))
    if kind == "graph-break" and not message and seen.breaks:
        message = f"{seen.breaks[0].reason}: {seen.breaks[0].detail}"
    return message, fr.normalise_frames(frames)


def without_paths(value: Any) -> Any:
    """Return a JSON value whose texts have no paths of this machine; names of files stay."""
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_paths(item) for item in value]
    if isinstance(value, str):
        for pattern, replacement in _PATHS:
            value = pattern.sub(replacement, value)
    return value


def sighting_of(
    name: str, case: Case, variant: Variant, torch: str, run_path: Path
) -> dict[str, Any]:
    """Return the line of one run."""
    seen = read_observation(run_path)
    verdict = judge_run(seen)
    message, frames = message_and_frames(verdict.kind, seen)
    return {
        "label": case.label,
        "target": f"benchmarks/cases/known_bugs/{factory_target(name, case)}",
        "settings": settings_of(case, variant),
        "torch": torch,
        "kind": verdict.kind,
        "message": without_paths(message[: 2 * MAX_MESSAGE_CHARS])[:MAX_MESSAGE_CHARS],
        "top3": [fr.show_frame(frame) for frame in frames[:3]],
        "reason": without_paths(verdict.reason)[:MAX_REASON_CHARS],
        "evidence": without_paths(evidence_of(verdict, seen)),
    }


def shows_bug(case: Case, sighting: Mapping[str, Any]) -> bool:
    """Return whether a run shows what only the cause of its case makes."""
    text = f"{sighting['message']}\n{sighting['reason']}"
    return sighting["kind"] in case.kinds and re.search(case.pattern, text) is not None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of cases, the interpreter and the files."""
    add_only_option(parser, CASES, "case")
    parser.add_argument("--python", default=sys.executable, help="default: the running one")
    parser.add_argument("--few", action="store_true", help="one run of each case")
    parser.add_argument(
        "--output",
        type=Path,
        default=DATA / "sightings.jsonl",
        metavar="FILE",
        help="default: benchmarks/data/sightings.jsonl",
    )
    parser.add_argument("--rejected", type=Path, metavar="FILE", help="default: not written")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="copy the run directories to this folder"
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Run what has no line yet; write its line, and yield a row for it."""
    command = [options.python, "-c", "import torch; print(torch.__version__)"]
    try:
        version = run_child(command)
    except OSError as problem:
        raise BadInput(f"--python: cannot run {options.python}: {problem.strerror}")
    if version.status:
        raise BadInput(f"--python: {options.python} cannot import torch")
    torch = version.out.strip()
    recorded = {
        run_key(line["target"], line["settings"], line["torch"])
        for path in (options.output, options.rejected)
        for line in _read_lines(path)
    }
    for name in options.only:
        case = CASES[name]
        for variant in variants_of(case, options.few):
            settings = settings_of(case, variant)
            if run_key(factory_target(name, case), settings, torch) in recorded:
                continue
            with tempfile.TemporaryDirectory() as folder:
                done = capture_variant(name, case, variant, options.python, Path(folder))
                row: Row = {"case": name, **settings, "torch": torch}
                row["options"] = " ".join(settings["options"])
                if not done.answer.get("run_dir"):
                    yield {**row, "is_shown": False, "signature": done.last_error}
                    continue
                run_path = Path(done.answer["run_dir"])
                sighting = sighting_of(name, case, variant, torch, run_path)
                if options.keep:
                    _keep_run(
                        run_path, options.keep / f"{name}-{variant.host}-{variant.size}-{torch}"
                    )
            is_shown = shows_bug(case, sighting)
            _append_line(options.output if is_shown else options.rejected, sighting)
            signature = sign_evidence(sighting["evidence"]).title
            yield {**row, "is_shown": is_shown, "signature": signature}


def _read_lines(path: Path | None) -> list[dict[str, Any]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _append_line(path: Path | None, sighting: Mapping[str, Any]) -> None:
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as lines:
            lines.write(json.dumps(sighting, sort_keys=True) + "\n")


def _keep_run(run_path: Path, folder: Path) -> None:
    number = 1
    while (copy := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    shutil.copytree(run_path, copy, ignore=shutil.ignore_patterns("pack", "*.sock"))


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options)
