"""``reprokit scale`` as a user runs it: growth is named, cost that does not grow is healthy, and no
size is lost without a line.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reprokit.host.pack import reader
from tests.support.environments import ROOT, clean_environ
from tests.support.judge_again import assert_judged_alike
from tests.support.reprokit_calls import CallResult, reprokit

# A backend with a known number of units of work, so that the law is known. One unit is large enough
# to be larger than the noise on a fast machine, also at the smallest size of the exponential law.
# Otherwise a power fits as well.
TARGET = """
import time, torch
def make(n=1, units=1):
    def backend(gm, inputs):
        while units > 1000 and print("at work") is None: time.sleep(0.1)  # until the deadline, at no cost
        for _ in range(units):
            sum(range(400_000))
            print("at work")  # without a word, a backend that computes for a minute is a hang
        return gm.forward
    return {"model": lambda x: x + n, "calls": [((torch.zeros(2),), {})], "compile": {"backend": backend}}
def steep(n=1): return make(n, 2 ** n)
def exact(n=1):
    def backend(gm, inputs):
        end = time.process_time() + 0.02 * 2 ** n
        while time.process_time() < end: sum(range(20_000))
        return gm.forward
    return {"model": lambda x: x + n, "calls": [((torch.zeros(2),), {})], "compile": {"backend": backend}}
def line(n=1): return make(n, 40 * n)
def picky(n=1, layers=1):
    if n > 2: raise torch.cuda.OutOfMemoryError("CUDA out of memory, out of memory")
    return make(n, 20 * layers)
"""

# command line -> words of the error line
LINES = {
    ("llama-tiny", "--layers", "1,2"): "at least 3",
    ("llama-tiny", "--layers", "1,2,x"): "'x' is not a size",
    ("llama-tiny", "--layers", "0,1,2"): "'0' is not a size",
    ("llama-tiny", "--layers", "1,2,2"): "has a size twice",
    ("llama-tiny", "--layers", "1,2,4.5"): "'4.5' is not a size",
    ("llama-tiny", "--layers", "4"): "none has; write for example",
    ("llama-tiny",): "none has; write for example",
    ("llama-tiny", "--layers", "1,2,4", "--batch-size", "1,2"): "layers and batch_size have",
    ("llama-tiny", "--layers", "1,2,4", "--set", "layers=1,2,4"): "given twice",
    ("llama-tiny", "--layers", "1,2,4", "--at", "3"): "smaller than the largest size that runs",
    ("llama-tiny", "--set", "depth=1,2,4"): "has no argument depth; it has layers",
    ("llama-tiny", "--set", "dtype=1,2,4"): "has no argument dtype",
    ("llama-tiny", "--set", "layers"): "write NAME=N,N,N",
    ("convnet", "--sequence-length", "1,2,4"): "convnet has no sequence length",
    ("llama41b", "--layers", "1,2,4"): "did you mean llama40b",
    ("--layers", "1,2,4"): "no target was given",
    ("--layers", "1,2,4", "--", "python", "x.py"): "cannot set the size of a command",
    ("target.py:line", "--set", "depth=1,2,4"): "takes no depth",
}


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "target.py"
    path.write_text(TARGET)
    return path


ASKS_TORCH = ("target.py:line", "--set", "depth=1,2,4")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, marks=pytest.mark.real) if words == ASKS_TORCH else words
        for words in LINES
    ],
    ids=" ".join,
)
def test_one_clear_line(words: tuple[str, ...], target: Path) -> None:
    """The line says what is wrong and what to do, with exit code 2, also with --json."""
    done = reprokit("scale", "--json", *words, cwd=target.parent)
    assert done.status == 2, done.out + done.err
    assert LINES[words] in done.err.strip().splitlines()[-1]
    assert LINES[words] in done.json["missing"][0]["why"] and done.json["growth"] is None


def shown(done: CallResult) -> str:
    """Return the output of ``reprokit show`` for the pack."""
    show = reprokit("show", done.json["pack"])
    assert show.status == 0
    return show.out


@pytest.mark.long
def test_an_exponential_compile_is_named_and_a_deadline_is_reported(
    target: Path, tmp_path: Path
) -> None:
    """Phase, law and frame are named; the size that reached its deadline is left out of the fit,
    and the stacks come from it.
    """
    done = reprokit(
        "scale",
        f"{target}:steep",
        "--set",
        "n=3,6,9,20",
        "--at",
        "20",
        "--timeout",
        "45",
        "--budget",
        "70",
        "--output-dir",
        tmp_path / "out",
        "--json",
        env=clean_environ(REPROKIT_MINIMIZE="1"),
    )
    result = done.json
    assert (done.status, done.kind) == (1, "superlinear-compile"), done.out + done.err
    assert result["signature"]["title"].startswith(
        "superlinear-compile: backend | exponential @ torch/_dynamo/"
    )
    growth = result["growth"]
    assert [row["verdict"] for row in growth["sizes"]] == ["ok"] * 3 + ["slow-compile"]
    assert growth["left_out"] == ["n=20 ended as slow-compile and is left out of the fit"]
    assert growth["worst"]["phase"] == "backend" and result["verdict"]["cause"].startswith(
        "exponential, x"
    )
    # no C++ was compiled: neither the interpreter's shutdown nor the killed run counts as time of
    # the C++ compiler
    assert all(row["phases"].get("cpp-build", 0.0) < 0.5 for row in growth["sizes"]), growth[
        "sizes"
    ]
    pack = reader.read_pack(Path(result["pack"]))
    assert pack.read_json("growth.json")["sizes"][0]["nodes"] == {"dynamo": 3}
    assert "reprokit scale --at 20 --set n=3,6,9,20" in pack.files["command.txt"].decode()
    small, text = result["minimized"], Path(result["repro"]).read_text()
    assert small["proof"]["answer"] == "same" and small["proof"]["eager"] == "passes", small
    assert small["proof"]["hits"] == small["proof"]["runs"] == 1, text
    assert "for n in (3, 6, 9):" in text and "assert seconds" in text  # it measures itself
    issue, page = pack.files["issue.md"].decode(), pack.files["report.html"].decode()
    for text in (issue, page, shown(done)):
        assert "exponential, x" in text and "left out of the fit" in text and "at 20" in text
    assert page.count("<polyline") > 2
    again = reprokit("pack", result["run_dir"], "--json")
    assert again.json["signature"] == result["signature"]
    refused = reprokit("ablate", result["pack"], "--yes")
    assert refused.status == 2 and "growth over several sizes" in refused.err
    replayed = reprokit("replay", result["pack"], "--yes", "-n", "1", "--json")
    assert (replayed.status, replayed.json["answer"]) == (0, "same"), replayed.out + replayed.err


@pytest.mark.long
def test_a_linear_compile_is_healthy(target: Path, tmp_path: Path) -> None:
    """Exit code 0, the law in the sentence, and a row for each size on the terminal.

    CPU seconds differ by 0.2 s from run to run, with which n log n can fit as well as linear.
    """
    done = reprokit(
        "scale", f"{target}:line", "--set", "n=2,4,8,16", "--output-dir", tmp_path / "out"
    )
    assert done.status == 0, done.out + done.err
    assert "n=4, " in done.err and "at 64" in done.out and "Compile time over 4 sizes" in done.out
    row = next(line for line in done.out.splitlines() if line.startswith("backend"))
    assert "linear" in row or "n log n" in row, row


@pytest.mark.long
def test_too_few_sizes_that_run_give_no_law(target: Path, tmp_path: Path) -> None:
    """A failure is the verdict then, and it says how many sizes were measured."""
    done = reprokit(
        "scale",
        f"{target}:picky",
        "--set",
        "n=1,2,3",
        "--set",
        "layers=2",
        "--output-dir",
        tmp_path / "out",
        "--json",
    )
    assert (done.status, done.kind) == (1, "oom"), done.out + done.err
    assert done.json["growth"]["says"] == "2 of 3 sizes finished, and a law needs 3"
    assert {"what": "size", "why": "n=3 ended as oom and is left out of the fit"} in done.json[
        "missing"
    ]


def assert_exponential(done: CallResult, phase: str) -> None:
    """Check that the growth of a phase is named, and that the pack has its numbers once."""
    assert (done.status, done.kind) == (1, "superlinear-compile"), done.out + done.err
    title = done.json["signature"]["title"]
    assert title.startswith(f"superlinear-compile: {phase} | exponential"), title
    files = reader.read_pack(Path(done.json["pack"])).files
    assert sum("growth.json" in name for name in files) == 1
    assert_judged_alike(done)


@pytest.mark.real("it compiles three sizes")
def test_an_exponential_backend_is_named(target: Path, tmp_path: Path) -> None:
    """The CPU time of the backend is given, so the law does not depend on the load."""
    done = reprokit(
        *("scale", f"{target}:exact", "--set", "n=2,4,6,8", "--at", "9"),
        *("--output-dir", tmp_path / "out", "--json"),
    )
    assert_exponential(done, "backend")


@pytest.mark.long
def test_the_chain_of_the_samples_is_exponential(tmp_path: Path) -> None:
    """Each value is used twice: Inductor on torch 2.13 writes the whole chain once for each use.

    The sizes are far apart, because the CPU time of a compile varies by 30% on a loaded machine.
    """
    sample = ROOT / "samples" / "superlinear_compile.py"
    done = reprokit(
        *("scale", f"{sample}:make", "--set", "n=2,5,8,11", "--at", "12"),
        *("--output-dir", tmp_path, "--json"),
    )
    # whether and where a few samples see a function of the recursion is chance
    assert_exponential(done, "codegen")
