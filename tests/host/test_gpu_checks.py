"""The checks on a GPU: their budgets, their results, and what they do without a device."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import markdown_tables, results
from tests.gpu import cubins, test_gpu
from tests.gpu.conftest import QUERY_TIMEOUT_S
from tests.support.environments import ROOT
from tests.support.gpu_results import CHECK, DEVICE, GpuResults

MAX_SECONDS = 1800
FACTS = {"GPU": "Invented GPU", "driver": "1.2", "torch": "9.9.0", "CUDA": "13.0"}


def checks() -> dict[str, tuple[str, float, int]]:
    """Return the title, the budget and the number of cases of each check, by test."""
    found = {}
    for name, test in vars(test_gpu).items():
        if name.startswith("test_"):
            marks = {mark.name: mark for mark in test.pytestmark}
            cases = len(marks["parametrize"].args[1]) if "parametrize" in marks else 1
            found[name] = (*marks["gpu"].args, cases)
    return found


def test_all_checks_end_within_half_an_hour() -> None:
    """Each check has a title of its own and a budget, and all budgets fit."""
    rows = checks().values()
    assert len({title for title, _, _ in rows}) == len(rows) > 10
    budgets_s = sum(budget_s * cases for _, budget_s, cases in rows)
    assert budgets_s + QUERY_TIMEOUT_S <= MAX_SECONDS


def report(title: str, outcome: str, when: str = "call", **facts: Any) -> Any:
    """Return what the plugin reads of a report of pytest."""
    reason = {"skipped": ("file.py", 1, "Skipped: no NCCL"), "failed": "assert 3 == 4\nmore"}
    return SimpleNamespace(
        user_properties=[(CHECK, title), (DEVICE, FACTS), *facts.items()],
        outcome=outcome,
        passed=outcome == "passed",
        when=when,
        duration=1.25,
        longrepr=reason.get(outcome),
    )


def test_results_become_a_table(tmp_path: Path) -> None:
    """The record has the device, and a row for each check with its numbers, also if it failed."""
    path = tmp_path / "gpu.json"
    collected = GpuResults(path)
    for one in (
        report("compared with a simulation: convnet", "passed", kernels=12, kernels_alike=12),
        report("compared with a simulation: convnet", "passed", when="teardown"),
        report("compared with a simulation: llama", "failed", kernels=4, kernels_alike=3),
        report("one rank of NCCL", "skipped", when="setup"),
        SimpleNamespace(user_properties=[], passed=True, when="call"),
    ):
        collected.pytest_runtest_logreport(one)
    collected.pytest_sessionfinish()
    found = results.read_result(path)
    assert [row["result"] for row in found.rows] == ["passed", "failed", "skipped"]
    assert found.rows[1]["kernels"] == 4 and found.rows[1]["note"] == "assert 3 == 4"
    assert found.rows[2]["note"] == "no NCCL"
    assert found.environment["GPU"] == "Invented GPU" and found.environment["driver"] == "1.2"
    text = "\n".join(markdown_tables.result_lines(found))
    assert "| compared with a simulation: llama | failed |  |  | 4 | 3 |  |  | 1 | assert" in text
    assert "GPU Invented GPU" in text and "1 of 3 checks passed." in text
    assert f"`{markdown_tables.GPU_COMMAND}`" in text


def test_nothing_is_written_without_a_check(tmp_path: Path) -> None:
    """Skipped tests have no device, so there is no result to publish."""
    collected = GpuResults(tmp_path / "gpu.json")
    collected.pytest_sessionfinish()
    assert not (tmp_path / "gpu.json").exists()


def elf(**sections: bytes) -> bytes:
    """Return an ELF file with these sections (elf(5))."""
    names = b"\0" + b"".join(f".{name}\0".encode() for name in sections) + b".names\0"
    body, rows = b"", []
    for name, data in [*sections.items(), ("names", names)]:
        offset = 64 + len(body)
        rows.append((names.index(f".{name}\0".encode()), offset, len(data)))
        body += data
    head = bytearray(64)
    struct.pack_into("<Q", head, 0x28, 64 + len(body))
    struct.pack_into("<HHH", head, 0x3A, 64, len(rows), len(rows) - 1)
    table = b""
    for name, offset, length in rows:
        row = bytearray(64)
        struct.pack_into("<I", row, 0, name)
        struct.pack_into("<QQ", row, 0x18, offset, length)
        table += row
    return bytes(head) + body + table


def test_machine_code_does_not_depend_on_names(tmp_path: Path) -> None:
    """Only the text sections count, and a cubin without one is an error."""
    files = {
        "a": elf(**{"text.add": b"code", "debug_line": b"/home/a"}),
        "b": elf(**{"text.mul": b"code", "debug_line": b"/b"}),
        "c": elf(**{"text.add": b"other"}),
        "d": elf(debug_line=b"x"),
    }
    for name, data in files.items():
        (tmp_path / f"{name}.cubin").write_bytes(data)
    a, b, c = (cubins.machine_code(tmp_path / f"{name}.cubin") for name in "abc")
    assert a == b != c
    with pytest.raises(AssertionError, match="no machine code"):
        cubins.machine_code(tmp_path / "d.cubin")


@pytest.mark.real
def test_without_a_device_each_check_is_skipped_with_the_reason(tmp_path: Path) -> None:
    """The command of the nox session succeeds, and writes no results."""
    path = tmp_path / "gpu.json"
    text = (ROOT / "noxfile.py").read_text()
    assert '"-n", "0", "-m", "gpu", "-rs", "tests/gpu"' in text
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "gpu", "-rs", "tests/gpu"]
    done = subprocess.run(
        [*command, "--gpu-results", str(path)],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    count = sum(cases for _, _, cases in checks().values())
    assert done.returncode == 0 and f"{count} skipped" in done.stdout, done.stdout + done.stderr
    assert "torch has no CUDA device" in done.stdout and not path.exists()


def test_the_document_says_what_is_not_measured_yet() -> None:
    """Its table is made from the results, or says that there are none."""
    page = markdown_tables.DOCUMENTS[0]
    body = markdown_tables.current_texts()[0][page].partition("<!-- table: gpu -->\n")[2]
    assert body.startswith("| check | result |")
    recorded = results.RESULTS / "gpu.json"
    if recorded.exists():
        assert json.loads(recorded.read_text())["measurement"] == "gpu"
