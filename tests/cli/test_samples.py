"""Every sample, captured as the README says: the right kind, a stable title, a pack that holds, a
program that fails.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.host.pack import reader

from ..conftest import ROOT, clean_environ, reprokit
from ..rejudge import assert_judged_alike

pytestmark = pytest.mark.slow

# sample -> kind, exit code, start of the title, words of a failing repro's stderr
SAMPLES = {
    "exception_inductor": (
        "exception",
        1,
        "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr",
        "KeyError: 'buf",
    ),
    "cpp_compile_error": (
        "exception",
        1,
        "exception: cpp-build | torch._inductor.exc.CppCompileError: conflicting declaration",
        "conflicting declaration",
    ),
    "crash": ("crash", 1, "crash: kernel-run | SIGSEGV in <generated>:call", ""),
    "hang": ("hang", 1, "hang: fx-passes | <user>:__call__ < torch/fx/passes/", ""),
    "healthy": ("ok", 0, "ok: no phase", ""),
}
ELSEWHERE = {
    "superlinear_compile": "test_scale.py",
    "wrong_result": "test_silent.py",
    "kv_cache": "test_silent.py",
    "graph_break": "test_silent.py",
    "max_autotune": "test_samples.py",
    "symmetric_memory": "test_samples.py",
    "cuda_graph_capture": "test_samples.py",
    "triton_architecture": "test_kernel.py",
}
"""Samples that say more than one capture can."""


def test_every_sample_is_listed() -> None:
    """A sample that no test runs is a promise nobody keeps."""
    assert {p.stem for p in (ROOT / "samples").glob("*.py")} == set(SAMPLES) | set(ELSEWHERE)
    for name, file in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text()
        assert f"{name}.py" in text and "assert_judged_alike(" in text


@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name: str, tmp_path: Path) -> None:
    """From the file to the pack, and from the pack's program to the same failure."""
    kind, status, title, words = SAMPLES[name]
    done = reprokit(
        "capture",
        ROOT / "samples" / f"{name}.py:make",
        "--stall",
        "15",
        "--timeout",
        "300",
        "--output-dir",
        tmp_path,
        "--json",
    )
    assert (done.status, done.kind) == (status, kind), done.out + done.err
    found = done.json
    assert found["signature"]["title"].startswith(title)
    assert set(found) == {
        "schema",
        "verdict",
        "signature",
        "run_dir",
        "pack",
        "issue",
        "repro",
        "candidate",
        "unproven",
        "report",
        "minimized",
        "ablation",
        "comparison",
        "traits",
        "compile",
        "versions",
        "redacted",
        "missing",
        "seconds",
        "peak_rss_bytes",
    }
    assert (
        Path(found["pack"]).name == f"reprokit-{name}-make-{kind}-{found['signature']['id']}.tar.gz"
    )
    pack = reader.read_pack(Path(found["pack"]))
    filed = {"issue.md", "issue/describe.md", "issue/error_logs.md", "issue/versions.md"}
    assert filed & set(pack.files) == (set() if kind == "ok" else filed)
    is_upstream = found["verdict"]["responsible"] in ("torch", "triton")
    assert ("issue/url.txt" in pack.files) is is_upstream
    for part in (
        "command.txt",
        "verdict.json",
        "signature.json",
        "observation.json",
        "run.json",
        "environment.json",
        "collect_env.txt",
    ):
        assert part in pack.files, part
    assert (
        "original.py" if kind == "ok" else "candidate.py"
    ) in pack.files and "repro.py" not in pack.files
    for folder in ("logs/", "graphs/", "trace/", "journal/"):
        assert any(n.startswith(folder) for n in pack.files), folder
    assert pack.json("signature.json") == {
        **found["signature"],
        "explain": pack.json("signature.json")["explain"],
    }
    if kind in ("exception", "crash", "hang"):
        assert pack.json("observation.json")["eager"] == "passes"
    if kind in ("exception", "crash"):
        again = subprocess.run(
            [sys.executable, found["candidate"]],
            capture_output=True,
            text=True,
            env=clean_environ(),
            check=False,
        )
        assert again.returncode not in (0, 2)
        assert words in again.stderr
    assert_judged_alike(done)
    if name == "hang":
        line = (ROOT / "samples" / "hang.py").read_text().splitlines().index(
            "        with lock, lock:"
        ) + 1
        assert found["verdict"]["responsible"] == "user", found["verdict"]
        assert found["verdict"]["responsible_place"].endswith(f"hang.py:{line}")
        assert f"hang.py:{line}. Please do not file it" in pack.files["issue.md"].decode()
        refused = reprokit("issue", found["pack"])
        assert refused.status == 1 and "in your own code at" in refused.out
        assert {"py-spy", "faulthandler"} <= {
            n.split("-", 1)[1].rsplit("-", 1)[0]
            for n in pack.files
            if n.startswith("stacks/") and n[7].isdigit()
        }


def test_autotuning_meets_its_deadline(tmp_path: Path) -> None:
    """It is no hang: the compiler advances, one C++ kernel after the other."""
    sample = ROOT / "samples" / "max_autotune.py"
    done = reprokit(
        "capture", f"{sample}:make", "--timeout", "20", "--output-dir", tmp_path, "--json"
    )
    assert (done.status, done.kind) == (1, "slow-compile"), done.out
    assert done.json["verdict"]["phase"] in (
        "cpp-build",
        "lowering",
        "codegen",
        "scheduler",
    ), done.json["verdict"]
    assert_judged_alike(done)


def test_symmetric_memory_at_another_place_is_no_compiler_bug(tmp_path: Path) -> None:
    """The environment says where this torch has it."""
    sample = ROOT / "samples" / "symmetric_memory.py"
    done = reprokit("capture", "--output-dir", tmp_path, "--json", "--", sys.executable, sample)
    assert (done.status, done.kind) == (1, "error-in-eager"), done.out
    places = reader.read_pack(Path(done.json["pack"])).json("environment.json")["symmetric_memory"]
    assert places["torch.distributed._symmetric_memory"] == "module"
    assert_judged_alike(done)


def test_a_compile_inside_a_cuda_graph_capture(tmp_path: Path) -> None:
    """Fails inside the capture; both cures are healthy."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    command = (sys.executable, ROOT / "samples" / "cuda_graph_capture.py")
    done = reprokit("capture", "--output-dir", tmp_path / "a", "--json", "--", *command)
    assert done.status == 1 and done.kind in ("exception", "error-in-eager"), done.out
    for cure in ("--warm", "--managed"):
        done = reprokit(
            "capture", "--output-dir", tmp_path / cure[2:], "--json", "--", *command, cure
        )
        assert (done.status, done.kind) == (0, "ok"), done.out


BUGS = ROOT / "tests" / "bugs"


@pytest.mark.parametrize(("buried", "sample"), [("buried_exception", "exception_inductor")])
def test_a_buried_bug_has_the_signature_of_the_small_one(
    buried: str, sample: str, tmp_path: Path
) -> None:
    """The same bug in a larger model is the same bug."""
    done = reprokit(
        "capture", BUGS / f"{buried}.py:make", "--output-dir", tmp_path, "--no-trace", "--json"
    )
    assert done.json["signature"]["title"].startswith(SAMPLES[sample][2]), done.out
    assert {"what": "TORCH_TRACE", "why": "left out by --no-trace"} in done.json["missing"]


def test_two_threads_that_abort_at_once(tmp_path: Path) -> None:
    """What the C++ runtime said names the crash; where a second thread may have kept it from its
    message, the type.
    """
    done = reprokit(
        "capture", BUGS / "abort_in_parallel_loop.py:make", "--output-dir", tmp_path, "--json"
    )
    is_race = "recursively" in (done.run_dir / "logs" / "stderr.txt").read_text()
    whole = "std::runtime_error: kernel, <path>:#, index out of bounds: # <= tmp# < #"
    said = done.json["signature"]["title"].removeprefix("crash: kernel-run | SIGABRT ")
    assert said in (("std::runtime_error", "std::terminate") if is_race else (whole,))
