"""Memory that grows with each call of compiled code is found, and memory that does not is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.environments import ROOT
from tests.support.reprokit_calls import CallResult, reprokit

CASES = ROOT / "benchmarks" / "cases" / "known_bugs" / "growing_memory.py"


def capture(name: str, folder: Path, *words: str) -> CallResult:
    quick = ("--no-minimize", "--no-ablate", "--no-compare", "--no-trace", "--output-dir", folder)
    return reprokit("capture", "--json", f"{CASES}:{name}", *words, *quick)


def line_of(done: CallResult) -> str:
    """Return the text of the line of the verdict."""
    file, _, number = done.json["verdict"]["work"]["line"].rpartition(":")
    return Path(file).read_text().splitlines()[int(number) - 1].strip()


@pytest.mark.real("it runs the target once, and many times with and without the compiler")
def test_tensors_that_compiled_code_keeps_are_found(tmp_path: Path) -> None:
    """The verdict has the slope, its interval, the holder and the line, and eager has none of
    them. The exit code is that of ``--fail-on``.
    """
    done = capture("closure", tmp_path, "--calls", "80", "--fail-on", "memory-growth")
    assert (done.status, done.kind) == (1, "memory-growth"), done.out + done.err
    first = done.json["call_growth"]["growing"][0]
    assert first["name"] == "bytes of tensors"
    assert first["slope"] == first["low"] == first["high"] == 8 * 16 * 4
    assert first["eager_slope"] == 0
    assert "closure variable kept" in done.json["verdict"]["detail"]
    assert line_of(done) == "kept.append(outputs[0].clone())"
    shown = reprokit("show", done.json["pack"]).out
    assert "Bytes of tensors grow by 512 with each call" in shown
    assert "--calls 80" in reprokit("show", done.json["pack"], "--json").out


@pytest.mark.real("it runs the target once, and many times with and without the compiler")
def test_objects_that_the_program_keeps_in_eager_too_are_the_programs(tmp_path: Path) -> None:
    """PyTorch regards the program as working, so the exit code is 0; nobody but the program is
    named.
    """
    done = capture("list_in_operator", tmp_path, "--calls", "80")
    assert (done.status, done.kind) == (0, "memory-growth"), done.out + done.err
    assert done.json["verdict"]["responsible"] == "user"
    assert "in eager as fast" in done.json["verdict"]["reason"]
    assert line_of(done) == "KEPT_OUTPUTS.append(x.clone())"


@pytest.mark.real
def test_results_of_the_last_calls_are_no_growth(tmp_path: Path) -> None:
    """A bounded queue of tensors is healthy, and so is what compiled code itself keeps."""
    done = capture("last_results", tmp_path, "--calls", "200")
    assert (done.status, done.kind) == (0, "ok"), done.out + done.err
    growth = done.json["call_growth"]
    assert growth["samples"] >= 20 and not growth["growing"]
    assert "Nothing grows over 200 calls" in (done.run_dir / "verdict.json").read_text()


def test_calls_need_a_target_that_reprokit_calls(tmp_path: Path) -> None:
    """A command, fake tensors and several ranks are refused in one line."""
    refused = (
        (("--calls", "200", "--", "python", "x.py"), "a command calls its model itself"),
        (("--calls", "200", "--weights", "fake", "llama-tiny"), "with --weights fake nothing is"),
        (("--calls", "200", "--tensor-parallel-gpus", "2", "llama-tiny"), "in one process"),
        (("--calls", "5", "llama-tiny"), "5"),
    )
    for words, says in refused:
        done = reprokit("capture", *words, cwd=tmp_path)
        assert done.status == 2 and says in done.err, done.err
        assert done.err.count("\n") == 1, done.err
