"""The line of generated code of a crash outlives the file of the code."""

from __future__ import annotations

from pathlib import Path

from reprokit.host.run import run_directory, stack_sources

REPORT = 'Fatal Python error: Segmentation fault\n\nThread 0x1 (most recent call first):\n  File "{file}", line {line} in call\n'


def _crashed(tmp_path: Path, line: object = 2) -> tuple[Path, Path]:
    run_path = tmp_path / "run"
    run_directory.make_folders(run_path)
    code = tmp_path / "torchinductor_me" / "ab" / "cabcdefghij.py"
    code.parent.mkdir(parents=True)
    code.write_text("def call(args):\n    cpp_fused_erf_0(arg0_1, buf0)\n")
    report = run_path / "stacks" / "faulthandler-7.txt"
    report.write_text(REPORT.format(file=code, line=line))
    return run_path, code


def test_the_line_is_read_after_its_file_is_deleted(tmp_path: Path) -> None:
    run_path, code = _crashed(tmp_path)
    stack_sources.keep_lines(run_path)
    code.unlink()
    (fault,) = stack_sources.read_faults(run_path, "")
    assert (fault.pid, fault.source) == (7, "cpp_fused_erf_0(arg0_1, buf0)")


def test_a_damaged_report_or_file_ends_nothing(tmp_path: Path) -> None:
    """A line number that is no number of a line, and lines that are no JSON."""
    run_path, _ = _crashed(tmp_path, "9" * 5_000)
    stack_sources.keep_lines(run_path)
    (run_path / stack_sources.FILE).write_text("{")
    (run_path / "stacks" / "faulthandler-7.txt").write_text("Fatal Python error: x\n")
    assert all(fault.source == "" for fault in stack_sources.read_faults(run_path, ""))
