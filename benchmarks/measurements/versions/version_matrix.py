"""Measure what of reprokit works with each supported version of torch.

python -m benchmarks run version_matrix [--versions 2.9.1 2.15.0] [--pythons PATH ...]
                                        [--only CHECK ...] [--environments DIR] [--delete]
                                        [--compare]

Without options it measures all releases of benchmarks/cases/version_cases.py. An environment is
built for each one, as ``reprokit bisect`` builds it, and kept in ``--environments``; with
``--delete`` it is deleted after its measurement. ``--pythons`` measures the torch of interpreters
that exist. Versions and checks that are not measured keep the cells of the recorded result.

``--compare`` changes no recorded cell: it fails if a measured cell differs from the recorded one.

A check is right if each of its parts has the answer of version_cases.py. A sample that is a known
bug may also give ``ok``: that version does not have the bug. A signature is compared with that of
the reference version.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from packaging.version import Version

from reprokit.core.shared.errors import BadInput as ReprokitBadInput
from reprokit.host.bisect import torch_environments

from ...cases import version_cases
from ...hang_captures import capture_hang_kind
from ...harness import (
    CASES,
    ROOT,
    BadInput,
    MeasurementFailed,
    ReprokitResult,
    run_reprokit,
    show_progress,
)
from ...measurement import Measurement, add_only_option
from ...results import RESULTS, Cell, Column, Row, read_result, today

RECORDED = RESULTS / "version_matrix.json"
INJECTED = CASES / "known_bugs" / "injected_relu.py"
LIMIT_S = 900.0
QUICK = ("--no-minimize", "--no-ablate")
STALL_S, DEADLINE_S = 10.0, 300.0


class PartAnswers:
    """The answers of the parts of one check, and the deviations from what is right."""

    def __init__(self, parts: dict[str, str]) -> None:
        self.parts, self.right, self.count = parts, 0, 0
        self.deviations: list[str] = []
        self.wrong_answers: set[str] = set()
        self.is_table = False
        """The parts are rows of a table that grows, so the cell has no number."""

    def note_part(self, name: str, answer: str, is_right: bool) -> None:
        """Record the answer of one part."""
        show_progress(f"  {name}: {answer}{'' if is_right else '  WRONG'}")
        self.parts[name] = answer
        self.count += 1
        self.right += is_right
        if not is_right:
            self.deviations.append(f"{name}: {answer}")
            self.wrong_answers.add(answer)

    @property
    def cell(self) -> str:
        """The cell of the table: the number of right parts, and each deviation.

        An answer that all parts have in common is there once.
        """
        if self.is_table and self.count:
            return f"all but {', '.join(self.deviations)}" if self.deviations else "all"
        text = f"{self.right} of {self.count}"
        if not self.right and len(self.wrong_answers) == 1:
            return f"{text} ({next(iter(self.wrong_answers))})"
        return f"{text} ({'; '.join(self.deviations)})" if self.deviations else text


def _capture(python: str, *words: str, command: Sequence[str] = ()) -> tuple[ReprokitResult, str]:
    """Run a capture, and return its result and its kind of verdict, or the line of its error."""
    where = ("--", python, *command) if command else ("--python", python)
    with tempfile.TemporaryDirectory() as folder:
        done = run_reprokit("capture", *words, "--output-dir", folder, *where, limit_s=LIMIT_S)
    return done, done.kind if done.answer.get("verdict") else f"failed: {done.last_error[-200:]}"


def check_hooks(python: str, answers: PartAnswers) -> None:
    """Compare the table of hooks with this torch."""
    answers.is_table = True
    done = run_reprokit("env", "--hooks", "--python", python, limit_s=LIMIT_S)
    for hook in done.answer.get("hooks") or ():
        if hook["expected"]:
            answers.count += 1
            answers.deviations += [hook["symbol"]] if hook["problem"] else []
    if not answers.count:
        answers.is_table = False
        answers.note_part("hooks", f"failed: {done.last_error[-200:]}", False)


def check_samples(python: str, answers: PartAnswers) -> None:
    """Capture the samples, and compare their verdicts with those of the reference version."""
    for sample in version_cases.SAMPLES:
        path = str(ROOT / "samples" / sample.name)
        if sample.is_command:
            done, kind = _capture(python, *sample.options, *QUICK, command=(path,))
        else:
            done, kind = _capture(python, path, *sample.options, *QUICK)
        is_right = kind == sample.kind or (sample.is_bug and kind == "ok")
        answers.note_part(f"sample {sample.name}", kind, is_right)
        title = (done.answer.get("signature") or {}).get("title", "")
        answers.parts[f"signature {sample.name}"] = title


def check_hangs(python: str, answers: PartAnswers) -> None:
    """Capture ten kinds of hangs, and judge their causes and phases."""
    for kind in version_cases.HANG_KINDS:
        try:
            hang = capture_hang_kind(kind, STALL_S, DEADLINE_S, python, QUICK)
        except MeasurementFailed as problem:
            answers.note_part(kind, str(problem)[-200:], False)
            continue
        is_right = hang.is_cause_right and hang.is_phase_right and not hang.survivors
        answers.note_part(kind, f"{hang.cause}, {hang.phase}", is_right)


def check_minimization(python: str, answers: PartAnswers) -> None:
    """Capture a compile error with reduction, proof and ablation."""
    done, kind = _capture(python, f"{INJECTED}:compile_error")
    minimized = done.answer.get("minimized") or {}
    proof = (minimized.get("proof") or {}).get("answer")
    text = f"{kind}, {minimized.get('lines')} lines, proof: {proof}"
    answers.note_part("reduction", text, (kind, proof) == ("exception", "same"))
    first = (done.answer.get("ablation") or {}).get("first")
    answers.note_part("ablation", str(first), first == 'backend="inductor"')


def check_comparison(python: str, answers: PartAnswers) -> None:
    """Capture a wrong result with reduction, proof and ablation."""
    done, kind = _capture(python, f"{INJECTED}:wrong_result")
    proof = ((done.answer.get("minimized") or {}).get("proof") or {}).get("answer")
    answers.note_part(
        "wrong result", f"{kind}, proof: {proof}", (kind, proof) == ("wrong-result", "same")
    )


def _check_kernels(python: str, answers: PartAnswers, *words: str) -> None:
    kernels = ("--kernels", "all") if "--train" not in words else ("--kernels", "changed")
    with tempfile.TemporaryDirectory() as folder:
        done = run_reprokit(
            *("capture", "--model", "llama-tiny", "--gpu", "h100", *words, *kernels, *QUICK),
            *("--output-dir", folder, "--python", python),
            limit_s=LIMIT_S,
        )
        found = done.run_file("kernels.json") or []
    # a kernel is known if an earlier run compiled it
    compiled = sum(kernel["answer"] in ("compiled", "known") for kernel in found)
    name = " ".join(("llama-tiny", *words))
    text = f"{done.kind}, {compiled} of {len(found)} kernels"
    if done.kind == "none":
        text = f"failed: {done.last_error[-200:]}"
    answers.note_part(name, text, done.kind == "ok" and 0 < compiled == len(found))


def check_simulated_gpu(python: str, answers: PartAnswers) -> None:
    """Compile inference, training, and one rank of two for an H100, with kernels to cubins."""
    for words in ((), ("--train",), ("--tensor-parallel-gpus", "2")):
        _check_kernels(python, answers, *words)


def check_scale(python: str, answers: PartAnswers) -> None:
    """Find the exponential growth of a sample."""
    sample = f"{ROOT / 'samples' / 'superlinear_compile.py'}:make"
    words = ("--set", "n=4,6,8,9,10", "--at", "12", "--python", python)
    with tempfile.TemporaryDirectory() as folder:
        done = run_reprokit("scale", sample, *words, "--output-dir", folder, limit_s=LIMIT_S)
    kind = done.kind if done.kind != "none" else f"failed: {done.last_error[-200:]}"
    # a torch that has fixed pytorch#192498 has no such growth
    answers.note_part("superlinear_compile.py", kind, kind in ("superlinear-compile", "ok"))


def check_kernel(python: str, answers: PartAnswers) -> None:
    """Compile a Triton kernel for an architecture that ptxas knows and for one that it does not."""
    sample = str(ROOT / "samples" / "triton_architecture.py")
    done = run_reprokit("kernel", sample, "--arch", "90,101", "--python", python, limit_s=LIMIT_S)
    cells = {cell["arch"]: cell["answer"] for cell in done.answer.get("cells") or ()}
    answers.note_part(
        "triton_architecture.py",
        ", ".join(f"{arch} {answer}" for arch, answer in cells.items()) or done.last_error[-200:],
        cells.get("sm_90a") == "compiled" and len(cells) == 2,
    )


CHECKS: dict[str, Callable[[str, PartAnswers], None]] = {
    "hooks": check_hooks,
    "samples": check_samples,
    "hangs": check_hangs,
    "minimization": check_minimization,
    "comparison": check_comparison,
    "simulated GPU": check_simulated_gpu,
    "scale": check_scale,
    "kernel": check_kernel,
}
HEADINGS = {
    "hooks": "hooks that fit",
    "samples": "samples",
    "hangs": "kinds of hangs",
    "minimization": "reduction, ablation",
    "comparison": "comparison",
    "simulated GPU": "GPU: inference, training, two ranks",
    "scale": "`scale`",
    "kernel": "`kernel`",
}
SIGNATURES, PARTS = "signatures", "parts"
COLUMNS = (
    Column("torch", "torch"),
    Column("triton", "Triton"),
    *(Column(name, HEADINGS[name]) for name in CHECKS),
    Column(SIGNATURES, f"signatures as with {version_cases.REFERENCE}"),
    Column("date", "measured"),
    Column(PARTS, "answers of the parts, as JSON", is_hidden=True),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the choice of versions and checks."""
    parser.add_argument(
        "--versions", nargs="*", default=None, metavar="VERSION", help="default: all releases"
    )
    parser.add_argument(
        "--pythons", nargs="*", default=(), metavar="PATH", help="interpreters that have a torch"
    )
    add_only_option(parser, CHECKS, "check")
    parser.add_argument(
        "--environments",
        type=Path,
        metavar="DIR",
        help="where environments are kept; default: the cache of reprokit",
    )
    parser.add_argument(
        "--delete", action="store_true", help="delete each environment after its measurement"
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="fail if a measured cell differs from the recorded result",
    )


def measure_rows(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the row of each version: measured, or as it was recorded."""
    recorded = (
        {row["torch"]: row for row in read_result(RECORDED).rows} if RECORDED.exists() else {}
    )
    measured: dict[Cell, Row] = {}
    for version, python, folder in _interpreters(options):
        show_progress(f"torch {version}")
        before = recorded.get(version, {})
        row = {**before, **_measure_version(version, python, options.only, _parts(before))}
        measured[version] = row
        if folder is not None and options.delete:
            shutil.rmtree(folder, ignore_errors=True)
        if options.compare and (wrong := _differences(before, row, options.only)):
            raise MeasurementFailed(f"torch {version} differs from the record: {'; '.join(wrong)}")
    rows = {**recorded, **measured}
    reference = rows.get(version_cases.REFERENCE, {})
    shown = measured if options.compare else rows
    for row in sorted(shown.values(), key=_version_of):
        row[SIGNATURES] = _compare_signatures(row, reference)
        yield row


def _version_of(row: Row) -> Version:
    return Version(str(row["torch"]))


def _interpreters(options: argparse.Namespace) -> Iterator[tuple[str, str, Path | None]]:
    """Yield each version with its interpreter, and the folder of its environment if it is ours."""
    for python in options.pythons:
        yield _public_version(python), python, None
    versions = options.versions
    if versions is None:
        versions = [] if options.pythons else version_cases.RELEASES
    install = torch_environments.InstallOptions(
        cache=options.environments, packages=("numpy", "triton")
    )
    for version in versions:
        try:
            made = torch_environments.obtain_environment(version, install, show_progress)
        except (torch_environments.CannotInstall, ReprokitBadInput) as problem:
            raise MeasurementFailed(f"torch {version}: {problem}") from problem
        yield version, made.python, Path(made.python).parents[1]


def _public_version(python: str) -> str:
    try:
        return str(
            torch_environments.parse_version(
                torch_environments.imported_torch_version(python)
            ).public
        )
    except torch_environments.CannotInstall as problem:
        raise BadInput(str(problem)) from problem


def _parts(row: Row) -> dict[str, str]:
    """Return the answers of the parts of all checks of a version."""
    return {str(k): str(v) for k, v in json.loads(str(row.get(PARTS) or "{}")).items()}


def _measure_version(
    version: str, python: str, checks: Sequence[str], parts: dict[str, str]
) -> Row:
    row: Row = {"torch": version, "triton": _triton_version(python), "date": today()}
    for name in checks:
        answers = PartAnswers(parts)
        CHECKS[name](python, answers)
        row[name] = answers.cell
        show_progress(f" {name}: {answers.cell}")
    row[PARTS] = json.dumps(parts, ensure_ascii=False)
    return row


def _triton_version(python: str) -> str:
    done = run_reprokit("env", "--python", python, limit_s=LIMIT_S)
    packages = (done.answer.get("environment") or {}).get("packages") or {}
    return str(packages.get("triton", "none"))


def _compare_signatures(row: Row, reference: Row) -> Cell:
    """Return how many samples that are not fixed have the signature of the reference version; None
    if that is not recorded.
    """
    count, different = 0, []
    here, there = _parts(row), _parts(reference)
    for sample in version_cases.SAMPLES:
        name = f"signature {sample.name}"
        if here.get(f"sample {sample.name}") in (None, "ok") or name not in there:
            continue
        count += 1
        if here.get(name) != there[name]:
            different.append(sample.name)
    if not count:
        return None
    return f"{count - len(different)} of {count}" + (
        f" ({', '.join(different)})" if different else ""
    )


def _differences(before: Row, row: Row, checks: Sequence[str]) -> list[str]:
    return [
        f"{name}: {row[name]}, recorded: {before.get(name)}"
        for name in checks
        if row[name] != before.get(name)
    ]


def summarise_rows(rows: Sequence[Row]) -> list[str]:
    """Return what a version lacks, and which known bugs it has not."""
    notes = []
    for row in rows:
        fixed = [
            sample.name
            for sample in version_cases.SAMPLES
            if sample.is_bug and _parts(row).get(f"sample {sample.name}") == "ok"
        ]
        if fixed:
            notes.append(f"torch {row['torch']} does not have the bugs of {', '.join(fixed)}.")
    return notes


MEASUREMENT = Measurement(COLUMNS, measure_rows, add_options, summarise_rows)
