"""Failures that show only in a process that reads the cache of another process."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.environments import ROOT, clean_environ
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

CASES = ROOT / "benchmarks" / "cases" / "known_bugs" / "caches.py"


def capture(name: str, folder: Path, *words: str, **variables: str) -> CallResult:
    environ = clean_environ(**variables)
    if not variables:  # without a cache of the user there is no stage for it
        del environ["TORCHINDUCTOR_CACHE_DIR"]
    words = ("--caches", "--no-trace", *words, "--output-dir", str(folder / "out"))
    return reprokit("capture", "--json", f"{CASES}:{name}", *words, env=environ)


def recorded_case(recorded: Recorder, name: str, *words: str) -> CallResult:
    words = (f"{CASES}:{name}", "--caches", "--no-trace", "--no-minimize", *words)
    return recorded(*words, TORCHINDUCTOR_CACHE_DIR=None)


def evidence(done: CallResult) -> str:
    return (done.run_dir / "verdict.json").read_text()


@pytest.mark.real("it compiles once in each stage")
def test_a_healthy_target_finds_its_entries_and_the_users_cache_is_not_written(
    tmp_path: Path,
) -> None:
    """Each stage passes; warm and loaded find the entry, and a changed setting has its own key. The
    stage ``own`` uses a copy of the user's cache folder, which stays as it was.
    """
    # Inductor splits the command of a C++ build at spaces, so its folder has none
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "own"
        (own / "fxgraph").mkdir(parents=True)
        (own / "note.txt").write_text("mine")
        done = capture("healthy", tmp_path, TORCHINDUCTOR_CACHE_DIR=str(own))
        left = sorted(path.name for path in own.rglob("*"))
    assert left == ["fxgraph", "note.txt"]
    assert (done.status, done.kind) == (0, "ok")
    text = evidence(done)
    found = {
        word: text.count(f"stage {word},")
        for word in ("cold", "own", "warm", "loaded", "precompiled")
    }
    assert found == dict.fromkeys(found, 1)
    assert text.count("1 aot-autograd hit, 1 fx-graph hit") == 2  # warm and loaded
    assert "epilogue_fusion=False): ok" in text
    left = [path for path in (done.run_dir / "caches").rglob("*") if path.suffix in (".so", ".pt")]
    assert not left


@pytest.mark.long
def test_a_killed_writer_is_an_error_on_load_whose_repro_has_two_processes(
    tmp_path: Path,
) -> None:
    """An empty shared library fails only in the warm stage; the machine is responsible, and the
    repro fails by itself in a fresh process.
    """
    done = capture("killed_writer", tmp_path, "--minimize", "--budget", "60")
    verdict = done.json["verdict"]
    assert (done.kind, verdict["stage"], verdict["responsible"]) == (
        "exception",
        "warm",
        "machine",
    )
    assert "cached code: ImportError" in done.json["signature"]["title"]
    assert "file too short" in done.json["signature"]["title"]
    assert "stage cold, with an empty cache: ok" in evidence(done)
    assert "the file is empty" in evidence(done)
    repro = Path(done.json["repro"])
    assert "subprocess.run" in repro.read_text()
    environ = {**clean_environ(), "TORCHINDUCTOR_VEC_ISA_OK": "1"}
    again = subprocess.run(
        [sys.executable, repro], env=environ, capture_output=True, text=True, check=False
    )
    assert again.returncode == 1 and "file too short" in again.stderr


def test_a_poisoned_entry_is_a_miss(recorded: Recorder) -> None:
    """A cut entry is compiled again although the cache has it; the machine is responsible."""
    poisoned = recorded_case(recorded, "poisoned_entry")
    verdict = poisoned.json["verdict"]
    assert (poisoned.kind, verdict["stage"]) == ("cache-miss", "warm")
    assert (verdict["phase"], verdict["responsible"]) == ("cache-load", "machine")
    assert "cached code: aot-autograd entry is not used" in poisoned.json["signature"]["title"]


def test_a_stale_key_gives_the_results_of_the_old_setting(recorded: Recorder) -> None:
    """A pass whose uuid does not change with a variable is the program's own failure."""
    stale = recorded_case(recorded, "stale_key", "--cache-change", "FACTOR=3")
    verdict = stale.json["verdict"]
    assert (stale.kind, verdict["stage"]) == ("wrong-result", "changed")
    assert verdict["responsible"] == "user"
    assert "caches.py:" in verdict["responsible_place"]
    assert "different results than a fresh compile" in verdict["reason"]


@pytest.mark.long
def test_a_guard_that_fails_on_load_is_an_error_of_torch(tmp_path: Path) -> None:
    """A function whose guard holds only in the writer is compiled again by the reader, and torch
    2.13 raises an exception: the name of a global is there already.
    """
    done = capture("failing_guard", tmp_path, "--no-minimize")
    verdict = done.json["verdict"]
    assert (done.kind, verdict["stage"]) == ("exception", "precompiled")
    assert verdict["responsible"] == "torch"
    assert "cached code: AssertionError: Name" in done.json["signature"]["title"]


def test_a_hang_while_a_process_reads_the_cache_is_a_verdict(recorded: Recorder) -> None:
    """A uuid that waits where the cache has entries hangs only in the warm stage."""
    done = recorded_case(recorded, "hanging_key", "--stall", "15")
    verdict = done.json["verdict"]
    assert (done.kind, verdict["stage"], verdict["responsible"]) == ("hang", "warm", "user")


def test_the_options_of_caches_need_it(tmp_path: Path) -> None:
    """A wrong value, and an option without ``--caches``, get one clear line."""
    wrong = (
        ("--cache-change", "A=1"),
        ("--caches", "--cache-change", "A"),
        ("--caches", "--gpu", "h100"),
    )
    for words in wrong:
        done = reprokit("capture", f"{CASES}:healthy", *words, cwd=tmp_path)
        assert done.status == 2 and words[-2] in done.err
        assert len(done.err.strip().splitlines()) == 1
