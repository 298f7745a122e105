"""Every sample, captured as the README says: the right kind, a stable title, a pack that holds, a repro that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.host import archive

from ..conftest import ROOT, clean_environ, reprokit

pytestmark = pytest.mark.slow

# sample -> kind, exit code, start of the title, words of a failing repro's stderr
SAMPLES = {
    "exception_inductor": ("exception", 1, "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr", "KeyError: 'buf"),
    "cpp_compile_error": ("exception", 1, "exception: cpp-build | torch._inductor.exc.CppCompileError: conflicting declaration", "conflicting declaration"),
    "crash": ("crash", 1, "crash: kernel-run | SIGSEGV in <generated>:call", ""),
    "hang": ("hang", 1, "hang: fx-passes | <user>:__call__ < torch/fx/passes/", ""),
    "healthy": ("ok", 0, "ok: no phase", ""),
    "kv_cache": ("recompile-limit", 1, "recompile-limit: guards | <input>._current_idx == #", ""),
    "graph_break": ("graph-break", 1, "graph-break: dynamo-trace | Unsupported Tensor.item() call", ""),
}  # fmt: skip
ELSEWHERE = {"superlinear_compile": "test_scale.py", "wrong_result": "test_silent.py"}
"""Samples that say more than one capture can."""


def test_every_sample_is_listed() -> None:
    """A sample that no test runs is a promise nobody keeps."""
    assert {p.stem for p in (ROOT / "samples").glob("*.py")} == set(SAMPLES) | set(ELSEWHERE)
    for name, file in ELSEWHERE.items():
        assert f"{name}.py" in (Path(__file__).parent / file).read_text()


@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name: str, tmp_path: Path) -> None:
    """From the file to the pack, and from the pack's repro to the same failure."""
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
        "report",
        "minimized",
        "ablation",
        "comparison",
        "missing",
        "seconds",
        "peak_rss_bytes",
    }
    assert Path(found["pack"]).name == f"reprokit-{name}-make-{kind}-{found['signature']['id']}.tar.gz"
    pack = archive.read(Path(found["pack"]))
    for part in ("issue.md", "issue/describe.md", "issue/error_logs.md", "issue/versions.md", "issue/url.txt", "repro.py", "command.txt",
                 "verdict.json", "signature.json", "observation.json", "run.json", "environment.json", "collect_env.txt"):  # fmt: skip
        assert part in pack.files, part
    for folder in ("logs/", *(("graphs/",) if kind != "graph-break" else ()), "trace/", "journal/"):
        assert any(n.startswith(folder) for n in pack.files), folder
    assert pack.json("signature.json") == {**found["signature"], "explain": pack.json("signature.json")["explain"]}
    if kind in ("exception", "crash", "hang"):
        assert pack.json("observation.json")["eager"] == "passes"
    if kind in ("exception", "crash"):
        environ = clean_environ(TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cache"))
        again = subprocess.run(
            [sys.executable, found["repro"]], capture_output=True, text=True, env=environ, check=False
        )
        assert again.returncode not in (0, 2)
        assert words in again.stderr
    if name == "hang":
        assert {"py-spy", "faulthandler"} <= {
            n.split("-", 1)[1].rsplit("-", 1)[0] for n in pack.files if n.startswith("stacks/") and n[7].isdigit()
        }


BUGS = ROOT / "tests" / "bugs"


@pytest.mark.parametrize(("buried", "sample"), [("buried_exception", "exception_inductor"), ("buried_crash", "crash")])
def test_a_buried_bug_has_the_signature_of_the_small_one(buried: str, sample: str, tmp_path: Path) -> None:
    """The same bug in a larger model is the same bug."""
    done = reprokit("capture", BUGS / f"{buried}.py:make", "--output-dir", tmp_path, "--no-trace", "--json")
    assert done.json["signature"]["title"].startswith(SAMPLES[sample][2]), done.out
    assert {"what": "TORCH_TRACE", "why": "left out by --no-trace"} in done.json["missing"]


def test_two_threads_that_abort_at_once(tmp_path: Path) -> None:
    """What the C++ runtime said names the crash; where a second thread may have kept it from its message, the type."""
    done = reprokit("capture", BUGS / "abort_in_parallel_loop.py:make", "--output-dir", tmp_path, "--json")
    is_race = "recursively" in (done.run_dir / "logs" / "stderr.txt").read_text()
    whole = "std::runtime_error: kernel, <path>:#, index out of bounds: # <= tmp# < #"
    said = done.json["signature"]["title"].removeprefix("crash: kernel-run | SIGABRT ")
    assert said in (("std::runtime_error", "std::terminate") if is_race else (whole,))
