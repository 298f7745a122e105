"""The line of generated code of a crash outlives the file of the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.core.judge.same_failure import compare_failures
from reprokit.core.judge.signature import sign_verdict
from reprokit.core.records.dumps import Dump, Frame, ThreadStack
from reprokit.core.records.finding import Verdict
from reprokit.core.records.observation import Observation
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


PASSES = """\
class Fuse:
    def __call__(self, graph):
        while True: pass

class Fold:
    def __call__(self, graph):
        while True: pass

def make():
    class Inner:
        def __call__(self, graph):
            while True: pass
    return Inner()
"""


def hang_at(file: Path, line: int) -> Observation:
    """Return a hang in a pass, with the stacks of faulthandler, which has no classes."""
    stack = (
        Frame(str(file), "__call__", line),
        Frame("/v/site-packages/torch/_inductor/fx_passes/post_grad.py", "post_grad_passes", 7),
    )
    threads = (ThreadStack(5, "MainThread", stack, is_main=True),)
    dumps = tuple(Dump(number, "faulthandler", 5, threads) for number in (1, 2))
    return Observation(dumps=dumps, main_pid=5)


def test_passes_with_a_call_method_have_signatures_of_their_own(tmp_path: Path) -> None:
    """The classes are found in the source, and stay in the run directory when it changes."""
    file = tmp_path / "my_passes.py"
    file.write_text(PASSES)
    verdict = Verdict("hang", "fx-passes", "python-loop", "")
    titles = []
    for line in (3, 7, 12):
        seen = stack_sources.name_own_functions(hang_at(file, line), tmp_path)
        titles.append(sign_verdict(verdict, seen).title)
    inside = " < torch/_inductor/fx_passes/post_grad.py:post_grad_passes"
    assert titles == [
        f"hang: fx-passes | <user>:my_passes.{name}.__call__{inside}"
        for name in ("Fuse", "Fold", "make.<locals>.Inner")
    ]
    file.write_text("print('a new program')\n")
    again = stack_sources.name_own_functions(hang_at(file, 3), tmp_path)
    assert sign_verdict(verdict, again).title == titles[0]


def test_a_smaller_program_has_the_same_failure_in_another_module() -> None:
    """A reduced program is one file, and may have no class."""
    verdict = Verdict("hang", "fx-passes", "python-loop", "")
    own = sign_verdict(verdict, hang_at(Path("/home/bob/my_passes.py"), 3))
    candidate = sign_verdict(verdict, hang_at(Path("/tmp/candidate/program.py"), 9))
    assert own.id != candidate.id
    assert compare_failures(own, verdict, candidate) == "same"


@pytest.mark.parametrize("text", ["def broken(", "\x00", ""])
def test_a_source_that_does_not_parse_hides_only_the_classes(text: str, tmp_path: Path) -> None:
    file = tmp_path / "my_passes.py"
    file.write_text(text)
    seen = hang_at(file, 3)
    assert stack_sources.name_own_functions(seen, tmp_path) == seen
