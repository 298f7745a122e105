"""What a command prints while it works and at its end."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from reprokit.cli.shared import out, print_capture, summary, terminal
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.triage.decision import UNDECIDED, Decision
from reprokit.host.minimize.minimize_result import MinimizeResult
from reprokit.host.minimize.proofs.proof import Proof, program_digest
from reprokit.host.minimize.proofs.proven import Repro
from reprokit.host.pipeline.capture_result import CaptureResult
from reprokit.host.system.progress import OperationStatus
from reprokit.host.watch.watchdog import RunProgress

PROGRAM = "import torch\n\n\ndef repro():\n    return torch.ones(1)\n"
PROOF = Proof("same", "title", "80e0acb1f040", runs=3, hits=3, digest=program_digest(PROGRAM))


def test_an_operation_is_a_line_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, a new operation is printed at once, and its progress only now and then."""
    live = terminal.LiveStatus()
    for number in range(1, 6):
        live.show_status(OperationStatus("proving", "", number, 5))
    live.show_status(OperationStatus("packing"))
    live.show_progress(RunProgress(1.0, 2_000_000, "importing torch", "", limit_s=60))
    assert capsys.readouterr().err == "reprokit: proving, 1 of 5\nreprokit: packing\n"


def test_the_progress_of_a_run_has_its_limit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line has the seconds, the deadline, the memory, the activity in words and the place."""
    monkeypatch.setattr(terminal, "PLAIN_INTERVAL_S", 0.0)
    live = terminal.LiveStatus()
    live.show_progress(RunProgress(12.0, 2_000_000, "lowering", "node mm", 7.0, 60))
    live.show_progress(RunProgress(12.0, 2_000_000, "", ""))
    assert capsys.readouterr().err.splitlines() == [
        "reprokit: 12 s of at most 60 s, 2 MB, lowering, node mm, no progress for 7 s",
        "reprokit: 12 s, 2 MB, starting",
    ]


@pytest.mark.parametrize(
    ("position", "shown"),
    [
        ("/v/lib/python3.11/site-packages/torch/nn/modules/linear.py:134 in forward", ""),
        ("/my env/lib/site-packages/torch/nn/modules/linear.py:134 in forward", ""),
        (f"{Path.cwd()}/train.py:12 in step", "train.py:12 in step"),
        (f"/{'a' * 50}/{'b' * 20}/net.py:7 in f", f".../{'b' * 20}/net.py:7 in f"),
        ("call_function add (add_1)", "call_function add (add_1)"),
    ],
)
def test_the_position_of_the_compiler_is_short(
    position: str,
    shown: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of a package begins with the package, and one of the user with the current folder."""
    monkeypatch.setattr(terminal, "PLAIN_INTERVAL_S", 0.0)
    terminal.LiveStatus().show_progress(RunProgress(12.0, 2_000_000, "tracing", position))
    shown = shown or "torch/nn/modules/linear.py:134 in forward"
    assert capsys.readouterr().err == f"reprokit: 12 s, 2 MB, tracing, {shown}\n"


def captured(folder: Path, kind: str = "exception", **more: object) -> CaptureResult:
    """Return the result of a capture with a proved repro."""
    repro = folder / "repro.py"
    repro.write_text(PROGRAM)
    result = CaptureResult(
        Verdict(kind, "codegen", "KeyError", "KeyError was raised."),
        Signature("80e0acb1f040", "exception: codegen | KeyError", 8),
        Observation(),
        folder,
        pack_path=folder / "it.tar.gz",
        repro_path=repro,
        repro=Repro(PROGRAM, "a recorded graph", PROOF),
        decision=Decision("new issue", url="https://github.com/pytorch/pytorch/issues/new"),
        total_s=95.6,
    )
    for name, value in more.items():
        setattr(result, name, value)
    return result


def test_a_capture_ends_with_the_repro_and_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output ends with the next command, and with the text of the repro if it is short."""
    print_capture.print_captured(captured(tmp_path))
    command = shlex.join(["reprokit", "issue", str(tmp_path / "it.tar.gz")])
    assert capsys.readouterr().out.endswith(f"\nnext       {command}\n\n{PROGRAM}\n")


def test_the_repro_of_the_pack_is_described_and_not_the_reduced_program(tmp_path: Path) -> None:
    """A reduced program without a proof is not in the pack; a recorded one with a proof is."""
    reduced = MinimizeResult("x = 1\n", proof=Proof("passes", "ok: no phase", ""))
    result = captured(tmp_path, minimized=reduced)
    shown = dict(summary.summary_rows(result))["repro"]
    assert shown.startswith("3 lines, fails in 3 of 3 fresh runs: ")


def test_a_verbose_capture_prints_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The output has the signature, the paths, the repro, the total time, and the next command."""
    monkeypatch.setattr(out.SETTINGS, "is_verbose", True)
    print_capture.print_captured(captured(tmp_path))
    command = shlex.join(["reprokit", "issue", str(tmp_path / "it.tar.gz")])
    printed = capsys.readouterr().out
    assert printed.endswith(f"\n{PROGRAM}\ntotal      96 s\nnext       {command}\n")
    assert "signature  80e0acb1f040" in printed


@pytest.mark.parametrize(
    ("more", "command"),
    [
        ({"kind": "ok"}, ""),
        ({"decision": UNDECIDED}, "reprokit show FOLDER/it.tar.gz"),
        ({"repro_path": None, "unproven": "no time"}, "reprokit minimize FOLDER --budget 900"),
        ({"pack_path": None}, ""),
    ],
)
def test_the_next_command_fits_the_result(
    more: dict[str, object], command: str, tmp_path: Path
) -> None:
    """A healthy run needs none; without a repro a longer minimization helps; what is not filed is
    shown.
    """
    result = captured(tmp_path, **{"kind": "exception", **more})  # type: ignore[arg-type]
    words = [word.replace("FOLDER", str(tmp_path)) for word in command.split()]
    assert summary.next_command(result) == shlex.join(words)


def test_no_line_of_reprokit_is_on_an_open_line_of_the_program(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A progress bar leaves its line open. A line that ends needs no second end."""
    monkeypatch.setattr(terminal, "PLAIN_INTERVAL_S", 0.0)
    echo, live = out.Echo.of(out.PROGRESS), terminal.LiveStatus()
    assert echo is not None
    for shown in (b"0%|  | 0/4", b"\r50%| | 2/4", b" done\n", b""):
        echo.write(shown)
        echo.flush()
        live.show_progress(RunProgress(20.0, 2_000_000, "", ""))
    said = "reprokit: 20 s, 2 MB, starting\n"
    bars = ("0%|  | 0/4\n", "\r50%| | 2/4\n", " done\n", "")
    assert capsysbinary.readouterr().err.decode() == "".join(bar + said for bar in bars)


def test_paths_are_relative_only_to_a_folder_that_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that begins with a dash is no option, and a program may delete the current folder."""
    (tmp_path / "-out").mkdir()
    (tmp_path / "-out" / "repro.py").write_text(PROGRAM)
    result = captured(tmp_path)
    result.repro_path = tmp_path / "-out" / "repro.py"
    result.users_line = f"{tmp_path}/train.py:3 in f: x = 1"
    monkeypatch.chdir(tmp_path)
    rows = dict(summary.summary_rows(result))
    assert rows["repro"].endswith(": ./-out/repro.py")
    assert rows["your line"] == "train.py:3 in f: x = 1"

    def gone() -> Path:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "cwd", gone)
    rows = dict(summary.summary_rows(result))
    assert rows["repro"].endswith(f": {tmp_path}/-out/repro.py")
    assert rows["next"] == f"reprokit issue {shlex.quote(str(tmp_path / 'it.tar.gz'))}"
