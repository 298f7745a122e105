"""The kernels of a run are compiled one by one on warm servers that do not import torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from reprokit.core.judge import same_failure
from reprokit.core.judge.verdict import judge_run
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract import run_names
from reprokit.core.shared.contract.event_base import Event
from reprokit.core.shared.contract.events import KernelWritten
from reprokit.host.experiments import kernel_checks
from reprokit.host.run import run_directory
from reprokit.host.run.observation_reader import Journals
from tests.support.candidates import judged

from ..cli.test_kernel import ADD


@pytest.mark.triton
def test_a_compiled_kernel_is_not_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first failure in the order of the run is the verdict, the others are evidence, and failed
    kernels are compiled again.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run_directory.make_folders(tmp_path)
    texts = {
        "good.py": ADD.replace("101, 32", "90, 32"),
        "bad.py": ADD,
        "worse.py": ADD.replace("tl.load(", "tl.lod("),
    }
    (tmp_path / run_names.KERNELS_FOLDER).mkdir()
    for name, text in texts.items():
        (tmp_path / run_names.KERNELS_FOLDER / name).write_text(text)
    written: list[Event] = [KernelWritten(files=[name]) for name in texts]
    journals = Journals({1: written}, 0, {})
    healthy = Observation(exit_status=0, has_finished=True, simulated=("a GPU",))

    def answers() -> list[str]:
        return [
            row["answer"] for row in json.loads((tmp_path / run_names.KERNELS_FILE).read_text())
        ]

    seen = kernel_checks.check_kernels(healthy, journals, tmp_path, sys.executable, "changed")
    assert answers() == ["compiled", "exception", "exception"]
    verdict = judge_run(seen)
    assert (verdict.kind, verdict.phase, verdict.work["kernel"]) == ("exception", "ptxas", "bad.py")
    assert any(
        "worse.py: exception: ttir" in row and "no attribute 'lod'" in row
        for row in verdict.evidence
    ), verdict
    assert verdict.simulated == ("a GPU",) and list((tmp_path / "logs").glob("triton*.mlir"))
    kernel_checks.check_kernels(healthy, journals, tmp_path, sys.executable, "changed")
    assert answers() == ["known", "exception", "exception"]
    del written[1:]
    assert kernel_checks.check_kernels(
        healthy, journals, tmp_path, sys.executable, "all"
    ).kernels == 1 and answers() == ["compiled"]


def test_the_user_sees_how_many_kernels_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kernel that ends is counted, whatever its result, and known ones are not."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    answers = {"good.py": "ok", "odd.py": "unknown", "known.py": "ok"}

    def compile_them(programs: Any, python: str, folder: Path, note_result: Any) -> None:
        for name, _ in programs:
            note_result(name, judged(same_failure.PASSES, answers[name]))

    monkeypatch.setattr(kernel_checks, "compile_programs", compile_them)
    folder = tmp_path / run_names.KERNELS_FOLDER
    folder.mkdir()
    shown: list[tuple[str, int, int]] = []

    def check(*names: str) -> Observation:
        for name in names:
            (folder / name).write_text(name)
        events: list[Event] = [KernelWritten(files=[name]) for name in names]
        return kernel_checks.check_kernels(
            Observation(exit_status=0),
            Journals({1: events}, 0, {}),
            tmp_path,
            sys.executable,
            "changed",
            lambda status: shown.append((status.activity, status.done, status.total)),
        )

    assert check("known.py").kernels_compiled == 1
    shown.clear()
    seen = check("known.py", "good.py", "odd.py")
    assert shown == [("compiling Triton kernels", 1, 2), ("compiling Triton kernels", 2, 2)]
    assert (seen.kernels, seen.kernels_compiled) == (3, 2)
