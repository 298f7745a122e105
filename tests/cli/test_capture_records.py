"""``reprokit capture FILES`` turns what torch wrote about a run into a verdict and a proved repro."""

from __future__ import annotations

import ast
import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from reprokit.core.reported import trace_records
from reprokit.core.reported.answers import CapturedRun
from reprokit.host.pack import writer
from reprokit.host.scrub import read_records, record_packs, run_issue, run_records
from reprokit.host.scrub.jail import Jail, has_gpu
from reprokit.host.scrub.run_issue import IssueRun, JailedCapture, ScrubResult
from reprokit.host.system import private_names
from tests.core.test_trace_records import RUNNABLE, TRACE, line, of
from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

PROGRAM = """
import torch

@torch.compile
def model(x):
    a = torch.full((8, 8), -1e4)
    a[torch.arange(8).unsqueeze(0), torch.arange(8).unsqueeze(1)] = 0
    return torch.softmax(x + a, dim=-1)

model(torch.randn(8, 8))
"""
"""It fails with torch 2.9 to 2.15: https://github.com/pytorch/pytorch/issues/196570."""


def run_program(folder: Path, **variables: str) -> None:
    (folder / "model.py").write_text(PROGRAM)
    subprocess.run(
        [sys.executable, "model.py"],
        cwd=folder,
        env=clean_environ() | variables,
        capture_output=True,
        check=False,
        timeout=300,
    )


def test_a_record_is_read_without_consent_and_nothing_runs(tmp_path: Path) -> None:
    """The verdict says that it is from the record, and the program is not run."""
    (tmp_path / "trace one").mkdir()
    with gzip.open(tmp_path / "trace one" / "dedicated_log_torch_trace_x.log.gz", "wt") as file:
        file.write(TRACE)
    done = reprokit("capture", "trace one", cwd=tmp_path)
    assert done.status == 1, done.err
    first = done.out.splitlines()[0]
    assert first == "exception: compile 0/0 of model raised KeyError: 'buf1', as recorded"
    assert "add --yes to run it in a jail" in " ".join(done.out.split())
    rows = done.out.splitlines()
    assert len(rows) <= 10 and max(map(len, rows)) <= 100
    assert not (tmp_path / "reprokit-out").exists()
    (tmp_path / "link").symlink_to(tmp_path / "trace one")
    document = reprokit("capture", tmp_path / "link", "--json", cwd=tmp_path).json
    assert document["from_record"] and document["pack"] is None
    assert [one["source"] for one in document["programs"]] == [
        "the graph of Dynamo",
        "the graph of Inductor",
    ]


TRACEBACK = """\
Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/utils.py", line 4155, in run_node
    return node.target(*args, **kwargs)
RuntimeError: data is not allocated yet

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/convert_frame.py", line 2102, in _compile
    guarded_code = compile_inner(code, one_graph, hooks)
  File "/opt/venv/lib/python3.11/site-packages/torch/_dynamo/utils.py", line 3949, in get_fake_value
    raise error
RuntimeError: data is not allocated yet

from user code:
   File "/home/jane/secret_project/model.py", line 9, in model
    return MyMode(x)
"""
KNOWN = """\
schema = 1
issue = "acme/fork#7"
title = "data is not allocated yet"
kind = "exception"
component = "dynamo"
workaround = "call clone() first"

[[runs]]
torch = "2.13.0"
answer = "fails"
signature = "SIGNATURE"
title = "TITLE"
algorithm = ALGORITHM
"""


def test_a_record_without_a_program_leaves_a_pack(tmp_path: Path) -> None:
    """The pack has the redacted trace, the identity of the recorded exception is looked up, and
    commands that need a program say that there is none.
    """
    lines = TRACE.splitlines(keepends=True)
    graph = next(n for n, row in enumerate(lines) if "dynamo_output_graph" in row)
    rows = line(of(artifact={"name": "dynamo_error"}), TRACEBACK) + lines[-1]
    rows = rows.replace("KeyError: 'buf1'", "RuntimeError: data is not allocated yet")
    (tmp_path / "trace.log").write_text("".join(lines[:graph]) + rows)
    words = ("capture", "trace.log", "--output-dir", "out")
    document = reprokit(*words, "--json", cwd=tmp_path).json
    title = document["signature"]["title"]
    assert title == (
        "exception: dynamo-trace | torch._dynamo.exc.InternalTorchDynamoError: RuntimeError: data is"
        " not allocated yet @ torch/_dynamo/utils.py:get_fake_value"
    )
    (tmp_path / "mine").mkdir()
    entry = KNOWN.replace("SIGNATURE", document["signature"]["id"]).replace("TITLE", title)
    entry = entry.replace("ALGORITHM", str(document["signature"]["algorithm"]))
    (tmp_path / "mine" / "acme-7.toml").write_text(entry)
    done = reprokit(*words, "--catalogue", "mine", cwd=tmp_path)
    rows_printed = done.out.splitlines()
    assert done.status == 1 and len(rows_printed) <= 10 and "known: acme/fork#7" in done.out
    (pack,) = {*(tmp_path / "out").glob("*.tar.gz")}
    assert shlex.quote(str(pack)) in done.out
    with tarfile.open(pack) as tar:
        file = tar.extractfile("trace/trace.log.gz")
        assert file is not None
        text = gzip.decompress(file.read()).decode()
    assert "get_fake_value" in text and "jane" not in text
    shown = reprokit("show", pack, cwd=tmp_path)
    assert shown.status == 0 and shown.out.startswith(title)
    refused = reprokit("replay", pack, "--yes", cwd=tmp_path)
    assert refused.status == 2 and "neither repro.py nor candidate.py" in refused.err
    refused = reprokit("minimize", pack, "--yes", cwd=tmp_path)
    assert refused.status == 2 and "has records of torch and no program" in refused.err


def test_a_record_that_ends_inside_of_a_compile_leaves_a_pack(tmp_path: Path) -> None:
    """The process may have crashed or hung."""
    (tmp_path / "trace.log").write_text(line(of(dynamo_start={})))
    document = reprokit("capture", "trace.log", "--json", cwd=tmp_path).json
    assert document["kind"] == "unknown" and "did not end in the record" in document["reason"]
    assert reprokit("show", document["pack"], cwd=tmp_path).status == 0


SECRETS = (
    "ghp_aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5",
    "hf_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7",
    "AKIAIOSFODNN7EXAMPLE",
)


@pytest.mark.parametrize("before", [0, 150, 240, 285, 295])
def test_no_part_of_a_secret_is_in_the_pack_of_a_record(before: int, tmp_path: Path) -> None:
    """A message is redacted before its numbers are replaced and before it is cut."""
    message = f"{'word ' * (before // 5)}no access with {' or '.join(SECRETS)}"
    text = TRACEBACK.replace("data is not allocated yet", message)
    failed = {"fail_type": "RuntimeError", "fail_reason": message, "co_name": "model"}
    rows = line(of(artifact={"name": "dynamo_error"}), text) + line(of(compilation_metrics=failed))
    (tmp_path / "trace.log").write_text(TRACE.splitlines(keepends=True)[0] + rows)
    done = reprokit("capture", "trace.log", "--json", cwd=tmp_path)
    with tarfile.open(done.json["pack"]) as tar:
        texts = [
            data if member.name[-3:] != ".gz" else gzip.decompress(data)
            for member in tar.getmembers()
            if (file := tar.extractfile(member)) is not None and (data := file.read())
        ]
    shown = reprokit("show", done.json["pack"], cwd=tmp_path).out
    everything = done.out + shown + b"\n".join(texts).decode()
    for secret in SECRETS:
        part = secret[:11]
        assert part not in everything and re.sub(r"\d", "#", part) not in everything
    assert "no access with" in everything


def test_the_json_of_a_record_is_redacted_as_its_pack_is(tmp_path: Path) -> None:
    """Users in paths and secrets in reasons are in no field, and a program stays a program."""
    failed = {
        "fail_type": "RuntimeError",
        "fail_reason": "no data",
        "co_name": "model",
        "co_filename": "/home/alice/secret/model.py",
        "co_firstlineno": 3,
        "fail_user_frame_filename": "/home/alice/secret/model.py",
        "fail_user_frame_lineno": 4,
    }
    broken = (
        "Graph break in user code at /home/alice/secret/m.py:7\nGraph Break Reason: Encountered\n\n"
        f"Call to {SECRETS[0]}\n"
    )
    runnable = RUNNABLE.replace("import torch\n", f'import torch\nTOKEN = "{SECRETS[1]}"\n', 1)
    rows = [
        line(of(artifact={"name": "dynamo_graph_break_reason"}), broken),
        line(of(artifact={"name": "recompile_reasons"}), f"[\"0/0: L['k'] == {SECRETS[2]}\"]"),
        line(of(artifact={"name": "fx_graph_runnable"}), runnable),
        line(of(compilation_metrics=failed)),
    ]
    (tmp_path / "trace.log").write_text(TRACE.splitlines(keepends=True)[0] + "".join(rows))
    done = reprokit("capture", "trace.log", "--json", cwd=tmp_path)
    (compiled,) = done.json["compiles"]
    assert compiled["function"] == "model" and compiled["place"].endswith("model.py:3")
    assert "alice" not in done.out and not any(secret in done.out for secret in SECRETS)
    for program in done.json["programs"]:
        ast.parse(program["text"])


def test_the_end_of_a_large_trace_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failure is at the end, and the start has the version of torch."""
    monkeypatch.setattr(writer, "MAX_TRACE_BYTES", 1_500)
    path = tmp_path / "trace.log"
    path.write_text(f"{'start' * 10}\n" + "middle\n" * 5_000 + "the end\n")
    draft = writer.PackDraft()
    record_packs._add_trace(draft, path, private_names.get_redactor())
    text = draft.files["trace/trace.log"].decode()
    assert text.startswith("startstart") and text.endswith("middle\nthe end\n")
    (trimmed,) = draft.trimmed
    assert 1_400 <= len(text) < 1_700
    assert f"{path.stat().st_size - 1_500} bytes cut from its middle" in trimmed


def test_the_error_of_a_backend_is_that_of_a_capture(tmp_path: Path) -> None:
    """Dynamo has it in the message of its own error."""
    text = TRACEBACK.replace("data is not allocated yet", "no bucket")
    head, _, rest = text.rpartition("RuntimeError: ")
    failed = "torch._dynamo.exc.BackendCompilerFailed: backend='mine' raised:\nValueError: "
    rows = line(of(artifact={"name": "dynamo_error"}), f"{head}{failed}{rest}")
    metrics = {"fail_type": "BackendCompilerFailed", "fail_reason": "backend='mine' raised:"}
    (tmp_path / "trace.log").write_text(rows + line(of(compilation_metrics=metrics)))
    document = reprokit("capture", "trace.log", "--json", cwd=tmp_path).json
    assert " | ValueError: no bucket @ " in document["signature"]["title"]


def test_a_recompile_limit_without_its_calls_leaves_a_pack(tmp_path: Path) -> None:
    """It has no identity, because a record does not have what a signature needs."""
    failed = {"co_name": "model", "fail_type": "torch._dynamo.exc.FailOnRecompileLimitHit"}
    (tmp_path / "trace.log").write_text(TRACE + line(of(1, compilation_metrics=failed)))
    document = reprokit("capture", "trace.log", "--json", cwd=tmp_path).json
    assert document["kind"] == "recompile-limit" and document["signature"] is None
    shown = reprokit("show", document["pack"], cwd=tmp_path)
    assert shown.status == 0 and "was refused" in shown.out, shown.err
    refused = reprokit("minimize", document["pack"], cwd=tmp_path)
    assert refused.status == 2 and "has records of torch and no program" in refused.err


def test_the_output_of_tlparse_is_read(tmp_path: Path) -> None:
    """Payloads are files beside ``raw.jsonl``; a path that leads out of the folder is not read."""
    (tmp_path / "0_0_0").mkdir()
    (tmp_path / "0_0_0" / "graph.txt").write_text("class GraphModule: pass")
    (tmp_path.parent / "secret.txt").write_text("class Secret: pass")
    record = {"frame_id": 0, "frame_compile_id": 0, "dynamo_output_graph": {}}
    rows = [record | {"payload_filename": name} for name in ("0_0_0/graph.txt", "../secret.txt")]
    rows.append({**rows[0], "payload_filename": str(tmp_path.parent / "secret.txt")})
    (tmp_path / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run,) = read_records.read_records([tmp_path]).runs
    assert run.compiles["0/0"].graphs == ["class GraphModule: pass", "", ""]


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda p: (p / "x").mkdir(), "nothing in x is a record of torch that reprokit reads"),
        (lambda p: (p / "x").write_bytes(os.urandom(5000)), "nothing in x is a record"),
        (lambda p: (p / "x").write_bytes(b"\x1f\x8b" + b"1" * 99), "nothing in x is a record"),
        (lambda p: (p / "x").write_bytes(b"PK\x03\x04" + b"1" * 99), "nothing in x is a record"),
        (lambda p: (p / "x").write_text("{" * 10_000), "nothing in x is a record"),
        (lambda p: (p / "x").write_text(RUNNABLE[:900] + RUNNABLE[-60:]), "nothing in x"),
        (
            lambda p: (p / "x").with_suffix(".py").write_text(RUNNABLE.replace("symint(5)", "x()")),
            "x.py: its load_args has reader.x(); reprokit capture -- python",
        ),
        (lambda p: (p / "x").write_text('{"event_type": "compilation"}'), "is a dump of Triton"),
    ],
)
def test_other_files_get_one_line(make: object, part: str, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path)
    (path,) = tmp_path.iterdir()
    done = reprokit("capture", path.name, cwd=tmp_path)
    assert done.status == 2 and part in done.err and done.err.count("\n") == 1, done.err


def test_an_exported_program_is_recognised(tmp_path: Path) -> None:
    """Its program loads the copy beside it; any other ZIP file is none."""
    with zipfile.ZipFile(tmp_path / "model.pt2", "w") as file:
        file.writestr("model/models/model.json", "{}")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("readme.txt", "")
    done = reprokit("capture", "model.pt2", cwd=tmp_path)
    assert done.status == 3 and done.out.startswith("unknown: model.pt2 has a graph; only")
    (program,) = reprokit("capture", "model.pt2", "--json", cwd=tmp_path).json["programs"]
    assert 'torch.export.load("exported.pt2")' in program["text"]
    assert reprokit("capture", "other.zip", cwd=tmp_path).status == 2


@pytest.mark.parametrize(
    ("title", "answer"),
    [
        ("exception: lowering | KeyError: 'x' @ torch/a.py:f", "different"),
        ("exception: kernel-run | KeyError: 'x' @ torch/a.py:f", "fails"),
    ],
)
def test_a_graph_that_was_compiled_has_no_repro_of_a_failed_compile(
    title: str, answer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The record shows that its compile ended, so a failure in the compiler is a different one."""
    failure = JailedCapture(CapturedRun("exception", "KeyError", title, "torch", is_compared=False))
    result = ScrubResult((IssueRun("2.13.0", "fails", title),), failure)
    monkeypatch.setattr(run_issue, "run_programs", lambda programs, *_: (programs[0], result))
    trace = TRACE.replace('"fail_type": "InductorError", ', "")
    run = trace_records.read_trace(trace.splitlines(keepends=True))
    records = read_records.Records(runs=[run])
    verdict = run_records.verdict_of(records)
    programs = run_records.programs_of(records, verdict)
    _, done = run_records.run_programs(
        programs, verdict, Jail(""), tmp_path, sys.executable, lambda _: None, 1.0
    )
    assert run_records.answer_of(done, verdict) == answer
    assert (done.failure is None) == (answer == "different")


def test_a_script_with_arguments_is_no_record(tmp_path: Path) -> None:
    """The line says how to run it, as for a script that does not exist."""
    (tmp_path / "train.py").write_text("print(1)")
    done = reprokit("capture", "train.py", "10", cwd=tmp_path)
    assert done.status == 2 and "reprokit capture -- train.py 10" in done.err


def test_options_of_a_model_are_refused_for_a_record(tmp_path: Path) -> None:
    (tmp_path / "trace.log").write_text(TRACE)
    done = reprokit("capture", "trace.log", "--layers", "2", cwd=tmp_path)
    assert done.status == 2 and "--layers cannot be used with files that torch wrote" in done.err


@pytest.mark.real("it reduces and proves a program in the jail")
def test_a_trace_becomes_a_proved_repro(tmp_path: Path) -> None:
    """The program of the trace is not there any more; the repro has the recorded failure, calls
    public functions, and names no file of the recording.
    """
    run_program(tmp_path, TORCH_TRACE=str(tmp_path / "trace"))
    (tmp_path / "model.py").unlink()
    words = ("--yes", "--budget", "10s", "--json")
    done = reprokit("capture", tmp_path / "trace", *words, cwd=tmp_path)
    assert done.status == 1, done.err
    document = done.json
    assert document["answer"] == "fails" and "KeyError: 'buf#'" in document["why"]
    with tarfile.open(document["pack"]) as pack:
        page = pack.extractfile("compiles.html")
        report = pack.extractfile("report.html")
        assert page is not None and "KeyError" in page.read().decode()
        assert report is not None and 'href="compiles.html"' in report.read().decode()
    (tmp_path / "repro.py").write_text(document["repro"])
    assert str(tmp_path / "trace") not in document["repro"] and "prims" not in document["repro"]
    again = subprocess.run(
        [sys.executable, "repro.py"],
        cwd=tmp_path,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode and "KeyError" in again.stderr, again.stderr[-2000:]


@pytest.mark.real("it reduces and proves a program in the jail")
def test_the_program_of_the_minifier_becomes_a_proved_repro(tmp_path: Path) -> None:
    """``minifier_launcher.py`` has a graph of ATen and no error; running it shows the failure."""
    run_program(tmp_path, TORCHDYNAMO_REPRO_AFTER="aot", TORCHDYNAMO_REPRO_LEVEL="2")
    (launcher,) = tmp_path.glob("torch_compile_debug/*/minifier/minifier_launcher.py")
    shutil.copy(launcher, tmp_path)
    done = reprokit("capture", "minifier_launcher.py", "--yes", "--budget", "10s", cwd=tmp_path)
    assert done.status == 1, done.err
    assert "the graph of Inductor: fails here" in done.out and "KeyError" in done.out, done.out
    assert "fails in 1 of 1 fresh processes" in " ".join(done.out.split()), done.out


GPU_GRAPH = """
import torch
from torch import tensor, device
import torch._inductor.config
# torch version: 2.13.0+cu128

class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()

    def forward(self, arg0_1, arg1_1):
        sin = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None
        cos = torch.ops.aten.cos.default(sin)
        pool = torch.ops.aten.fractional_max_pool2d.default(cos, [KERNEL], [3, 4], arg1_1)
        return (pool[0], sin)

def load_args(reader):
    buf0 = reader.storage(None, 1944, device=device(type='cuda', index=0))
    reader.tensor(buf0, (2, 3, 9, 9), is_leaf=True)  # arg0_1
    buf1 = reader.storage(None, 48, device=device(type='cuda', index=0))
    reader.tensor(buf1, (2, 3, 2), is_leaf=True)  # arg1_1
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    with torch.no_grad():
        run_repro(mod, load_args, accuracy=False, command='run', save_dir=None)
"""


@pytest.mark.real("it compiles for a simulated GPU in the jail")
@pytest.mark.triton
def test_a_graph_of_a_gpu_is_compiled_for_a_simulated_one(tmp_path: Path) -> None:
    """A failure of the compiler is proved. A compile that ends says nothing about the GPU."""
    path = tmp_path / "fx_graph_runnable.py"
    path.write_text(GPU_GRAPH.replace("KERNEL", "0, 0"))
    words = ("--gpu", "h100", "--yes", "--budget", "10s")
    done = reprokit("capture", path, *words, "--json", cwd=tmp_path)
    assert done.status == 1, done.err
    assert (done.json["answer"], done.json["torch"]) == ("fails", "2.13.0+cu128")
    assert "LoweringException: AssertionError: max not supp" in done.json["why"], done.json["why"]
    assert 0 < len(done.json["repro"].splitlines()) < 16 and "cos" not in done.json["repro"]
    path.write_text(GPU_GRAPH.replace("KERNEL", "2, 2"))
    done = reprokit("capture", path, *words, cwd=tmp_path)
    assert done.status == 3, done.err
    said = " ".join(done.out.split())
    assert "cannot tell for a simulated GPU" in said and "where nothing runs" in said
    done = reprokit("capture", path, "--gpu", "h1", cwd=tmp_path)
    assert done.status == 2 and "h1" in done.err and done.err.count("\n") == 1


@pytest.mark.real
@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_a_missing_gpu_is_no_failure(tmp_path: Path) -> None:
    path = tmp_path / "fx_graph_runnable.py"
    path.write_text(GPU_GRAPH.replace("KERNEL", "0, 0"))
    done = reprokit("capture", path, "--yes", "--budget", "10s", cwd=tmp_path)
    assert done.status == 3, done.err
    assert "missing a GPU: --gpu h100 compiles the graph" in " ".join(done.out.split())
