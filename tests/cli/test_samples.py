"""Every sample, captured as the README shows: the right kind, a stable title, a valid pack, a
program that fails.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.host.pack import reader
from tests.support.environments import ROOT, clean_environ
from tests.support.judge_again import assert_judged_alike
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit
from tests.support.warm_processes import run_torch_program

# sample -> kind, exit code, start of the title, words in the stderr of the repro
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
    "hang": (
        "hang",
        1,
        "hang: fx-passes | <user>:hang.WaitsForItself.__call__ < torch/fx/passes/",
        "",
    ),
    "healthy": ("ok", 0, "ok: no phase", ""),
}
ELSEWHERE = {
    "superlinear_compile": "test_scale.py",
    "wrong_result": "test_silent.py",
    "kv_cache": "test_silent.py",
    "graph_break": "test_silent.py",
    "max_autotune": "test_samples.py",
    "symmetric_memory": "test_samples.py",
    "cuda_graph_capture": "../gpu/test_gpu.py",
    "triton_architecture": "test_kernel.py",
}
"""Samples that need more than one capture."""


def test_every_sample_is_listed() -> None:
    """Each sample has a test."""
    assert {p.stem for p in (ROOT / "samples").glob("*.py")} == set(SAMPLES) | set(ELSEWHERE)
    for name, file in ELSEWHERE.items():
        text = (Path(__file__).parent / file).read_text()
        assert f"{name}.py" in text
        assert "assert_judged_alike(" in text or "recorded(" in text


def words_of(name: str) -> list[str]:
    """Return the words of the capture of a sample."""
    sample = ROOT / "samples" / f"{name}.py"
    return [f"{sample}:make", "--stall", "15", "--timeout", "300"]


@pytest.mark.real("it builds C++, and runs the candidate in a new interpreter")
def test_sample(tmp_path: Path) -> None:
    """The sample of a crash gives a pack, and the program of the pack gives the same failure."""
    environ = clean_environ()
    del environ["TORCHINDUCTOR_CACHE_DIR"]  # a user's run deletes its cache at its end
    words = (*words_of("crash"), "--output-dir", tmp_path, "--json")
    done = reprokit("capture", *words, env=environ)
    check_sample("crash", done)
    assert_judged_alike(done)
    result = done.json
    again = subprocess.run(
        [sys.executable, result["candidate"]],
        capture_output=True,
        text=True,
        env=clean_environ(),
        check=False,
    )
    assert again.returncode not in (0, 2)
    work = result["verdict"]["work"]
    assert work["kernel"] == result["traits"]["kernel"] and work.keys() == {"kernel", "line"}
    assert work["line"].endswith("crash.py:11")
    assert "diagonal" in result["traits"]["kernel"]
    site = "null pointer, aten._efficientzerotensor"
    assert result["signature"]["title"].endswith(f" | {site}"), result["missing"]
    shown = (done.run_dir / "verdict.json").read_text()
    assert "AddressSanitizer: SEGV, read" in shown
    assert "buffer buf" in shown and "returned by aten._efficientzerotensor" in shown
    assert "crash.py:11" in shown
    assert "cpp_fused_" in result["verdict"]["reason"]


def recorded_sample(name: str, recorded: Recorder) -> CallResult:
    return recorded(*words_of(name), name=f"sample-{name}")


@pytest.mark.parametrize("name", sorted({*SAMPLES} - {"crash"}))
def test_recorded_sample(name: str, recorded: Recorder) -> None:
    """The sample gives a pack with all parts."""
    done = recorded_sample(name, recorded)
    pack = check_sample(name, done)
    result = done.json
    if name == "hang":
        line = (ROOT / "samples" / "hang.py").read_text().splitlines().index(
            "        with lock, lock:"
        ) + 1
        assert result["verdict"]["responsible"] == "user", result["verdict"]
        assert result["verdict"]["responsible_place"].endswith(f"hang.py:{line}")
        assert f"hang.py:{line}. Please do not file it" in pack.files["issue.md"].decode()
        refused = reprokit("issue", result["pack"])
        assert refused.status == 1 and "in your own code at" in refused.out
        assert {"py-spy", "faulthandler"} <= {
            n.split("-", 1)[1].rsplit("-", 1)[0]
            for n in pack.files
            if n.startswith("stacks/") and n[7].isdigit()
        }


@pytest.mark.real
@pytest.mark.parametrize(
    "name",
    ["exception_inductor", pytest.param("cpp_compile_error", marks=pytest.mark.long)],
)
def test_the_candidate_of_a_sample_fails(name: str, recorded: Recorder, tmp_path: Path) -> None:
    """The program of the pack gives the failure of the sample."""
    done = recorded_sample(name, recorded)
    again = run_torch_program(Path(done.json["candidate"]), cwd=tmp_path)
    assert again.returncode not in (0, 2)
    assert SAMPLES[name][3] in again.stderr


def check_sample(name: str, done: CallResult) -> reader.PackFiles:
    """Check the verdict and the parts of the pack of a sample."""
    kind, status, title, _ = SAMPLES[name]
    assert (done.status, done.kind) == (status, kind), done.out + done.err
    result = done.json
    assert result["signature"]["title"].startswith(title)
    assert set(result) == {
        "decision",
        "schema",
        "verdict",
        "signature",
        "run_dir",
        "pack",
        "issue",
        "known",
        "repro",
        "candidate",
        "unproven",
        "report",
        "minimized",
        "ablation",
        "call_growth",
        "comparison",
        "memory",
        "speed",
        "traits",
        "compile",
        "versions",
        "redacted",
        "missing",
        "seconds",
        "peak_rss_bytes",
        "total_s",
        "advice",
    }
    assert (
        Path(result["pack"]).name
        == f"reprokit-{name}-make-{kind}-{result['signature']['id']}.tar.gz"
    )
    pack = reader.read_pack(Path(result["pack"]))
    filed = {"issue.md", "issue/describe.md", "issue/error_logs.md", "issue/versions.md"}
    assert filed & set(pack.files) == (set() if kind == "ok" else filed)
    is_upstream = result["verdict"]["responsible"] in ("torch", "triton")
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
    signature = pack.read_json("signature.json")
    assert result["signature"].items() <= signature.items()
    assert set(signature) - set(result["signature"]) == {"parts", "explain"}
    if kind in ("exception", "crash", "hang"):
        assert pack.read_json("observation.json")["eager"] == "passes"
    return pack


@pytest.mark.long
def test_autotuning_reaches_its_deadline(tmp_path: Path) -> None:
    """The run is not a hang: the compiler builds one C++ kernel after the other."""
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


def test_symmetric_memory_in_a_different_module_is_not_a_compiler_bug(recorded: Recorder) -> None:
    """The environment has the path of the C++ compiler that this torch uses."""
    sample = ROOT / "samples" / "symmetric_memory.py"
    done = recorded("--", sys.executable, sample)
    assert (done.status, done.kind) == (1, "error-in-eager"), done.out
    places = reader.read_pack(Path(done.json["pack"])).read_json("environment.json")[
        "symmetric_memory"
    ]
    assert places["torch.distributed._symmetric_memory"] == "module"


BUGS = ROOT / "tests" / "bugs"


@pytest.mark.parametrize(("buried", "sample"), [("buried_exception", "exception_inductor")])
def test_a_buried_bug_has_the_signature_of_the_small_one(
    buried: str, sample: str, recorded: Recorder
) -> None:
    """The same bug in a larger model has the same signature."""
    done = recorded(BUGS / f"{buried}.py:make", "--no-trace")
    assert done.json["signature"]["title"].startswith(SAMPLES[sample][2]), done.out
    assert {"what": "TORCH_TRACE", "why": "disabled by --no-trace"} in done.json["missing"]


@pytest.mark.long
def test_two_threads_that_abort_at_once(tmp_path: Path) -> None:
    """Whatever a second thread leaves of the message, the signature is the same."""
    done = reprokit(
        "capture", BUGS / "abort_in_parallel_loop.py:make", "--output-dir", tmp_path, "--json"
    )
    title = "crash: kernel-run | SIGABRT C++ exception | index out of bounds, aten.index"
    assert done.json["signature"]["title"] == title, done.out
    assert "terminate called" in (done.run_dir / "logs" / "stderr.txt").read_text()
