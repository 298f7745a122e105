"""A program that fails writes a record of its compile itself, and goes on."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import clean_environ
from tests.support.reprokit_calls import reprokit

FAILS = """
import torch

def failing(graph, inputs):
    raise RuntimeError("no such device")

@torch.compile(backend=failing)
def model(x):
    return x.sin() + 1

@torch.compile(backend="eager")
def healthy(x):
    return x.cos()

healthy(torch.ones(3))
for _ in range(3):
    try:
        model(torch.ones(4, 2))
    except Exception as problem:
        print(type(problem).__name__)
print(healthy(torch.ones(2, 2)).sum().item() > 0)
"""


def run(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env=clean_environ(**variables),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )


@pytest.mark.real
@pytest.mark.parametrize("way", ["call", "variable"])
def test_a_compile_that_fails_is_written_once(way: str, tmp_path: Path) -> None:
    """The program has the same output as without, the file is private to the user, and capture
    names the failure.
    """
    plain = run(FAILS, tmp_path)
    if way == "call":
        done = run("import reprokit; reprokit.watch(on_failure='record')\n" + FAILS, tmp_path)
    else:
        done = run("import reprokit.agent.prepare as p; p.prepare_at_import()\n" + FAILS, tmp_path,
                   REPROKIT_WATCH="record")  # fmt: skip
    assert done.stdout == plain.stdout
    assert done.stderr.count("reprokit: a compile failed") == 1
    (path,) = (tmp_path / "reprokit-out").iterdir()
    assert path.stat().st_mode & 0o77 == 0 and path.stat().st_size < 1 << 20
    record = reprokit("capture", path, cwd=tmp_path)
    assert record.status == 1, record.err
    assert record.out.startswith("exception: compile 1/0 of model raised RuntimeError: no such dev")
    assert "the backend failing, which is not a part of torch" in " ".join(record.out.split())


@pytest.mark.real
def test_each_file_names_its_own_failure(tmp_path: Path) -> None:
    """The file of a later failure has the earlier one too, and capture names the later one."""
    second = FAILS.replace("no such device", "out of keys")
    text = FAILS + second.replace("def model", "def other").replace("model(", "other(")
    run("import reprokit; reprokit.watch(on_failure='record')\n" + text, tmp_path)
    paths = sorted((tmp_path / "reprokit-out").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    said = [reprokit("capture", path, cwd=tmp_path).out.partition("\n")[0] for path in paths]
    assert "RuntimeError: no such device" in said[0] and "RuntimeError: out of keys" in said[1], (
        said
    )


@pytest.mark.real
def test_a_block_writes_each_compile(tmp_path: Path) -> None:
    """The handler is gone after the block, also if it raises, and a folder that cannot be written
    is replaced by that for temporary files.
    """
    text = """
import logging, reprokit, torch
first = torch.compile(lambda x: x.sin(), backend="eager")
second = torch.compile(lambda x: x.cos(), backend="eager")
before = list(logging.getLogger("torch.__trace").handlers)
try:
    with reprokit.record("/proc/no/such") as path:
        first(torch.ones(3))
        raise KeyError
except KeyError:
    second(torch.ones(3))
assert set(logging.getLogger("torch.__trace").handlers) <= set(before)
print(path)
"""
    done = run(text, tmp_path, TMPDIR=str(tmp_path))
    path = Path(done.stdout.strip())
    assert (
        path.parent == tmp_path
        and f"reprokit capture {shlex.quote(str(path))} --yes" in done.stderr
    )
    document = reprokit("capture", path, "--json", cwd=tmp_path).json
    assert document["kind"] == "ok" and len(document["compiles"]) == 1
    assert "sin" in document["programs"][0]["text"]


DYNAMO = """
import reprokit, torch
reprokit.watch(on_failure="record")

class Model(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(n, 4) for n in sizes)
    def forward(self, x):
        total = sum(layer(x) for layer in self.layers)
        torch._dynamo.graph_break()
        return total

try:
    torch.compile(Model([3, 3]), fullgraph=True)(torch.ones(2, 3))
except Exception as problem:
    print(type(problem).__name__)
torch.compile(Model([3]))(torch.ones(2, 3))  # here the graph break is no error
"""


@pytest.mark.real("it reduces and proves a program in the jail")
def test_a_failure_without_a_graph_has_the_call_as_a_program(tmp_path: Path) -> None:
    """Dynamo raises before there is a graph. The program of the call is proved, and it needs
    neither the user's file nor the constructor of the model.
    """
    script = tmp_path / "train.py"
    script.write_text(DYNAMO)
    done = run(f"import runpy; runpy.run_path({str(script)!r})", tmp_path)
    assert done.stdout == "Unsupported\n" and done.stderr.count("reprokit: a compile failed") == 1
    script.unlink()
    (path,) = (tmp_path / "reprokit-out").iterdir()
    document = reprokit("capture", path, "--yes", "--json", "--budget", "30s", cwd=tmp_path).json
    assert (document["kind"], document["answer"]) == ("graph-break", "fails"), document
    assert document["programs"][0]["source"] == "the call that failed"
    assert "torch.compile(model, fullgraph=True)(x)" in document["programs"][0]["text"]
    assert 0 < len(document["repro"].splitlines()) < 20 and "Model([" not in document["repro"]


@pytest.mark.real
def test_an_error_of_a_compiled_call_is_written_with_the_call(tmp_path: Path) -> None:
    """It goes to the program's own hook as before. On the signal the compiles are written without
    an error.
    """
    text = """
import os, signal, sys, torch
def hook(kind, problem, trace):
    print("hook", kind.__name__)
sys.excepthook = hook
import reprokit
reprokit.watch(on_failure="record", values=True)
def pick(x, index):
    return x[index].sin() * 2
compiled = torch.compile(pick)
compiled(torch.ones(5), torch.tensor([1, 4]))
os.kill(os.getpid(), signal.SIGRTMAX - 7)
compiled(torch.ones(5), torch.tensor([1, 9]))
"""
    script = tmp_path / "train.py"
    script.write_text(text)
    done = subprocess.run([sys.executable, script.name], cwd=tmp_path, env=clean_environ(),
                          capture_output=True, text=True, timeout=300, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "hook RuntimeError\n"), done.stderr
    paths = sorted((tmp_path / "reprokit-out").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    signalled, raised = (reprokit("capture", p, "--json", cwd=tmp_path).json for p in paths)
    assert (signalled["kind"], raised["kind"]) == ("ok", "exception")
    assert raised["reason"].startswith("a compiled call raised RuntimeError: kernel")
    call = raised["programs"][0]
    assert call["source"] == "the call that failed"
    assert "index = torch.tensor([1, 9], dtype=torch.int64)" in call["text"]


@pytest.mark.real
def test_a_failure_behind_a_graph_break_has_the_call_of_the_function(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("""
import reprokit, torch
reprokit.watch(on_failure="record")
def failing(graph, inputs):
    if any(node.name == "cos" for node in graph.graph.nodes):
        raise RuntimeError("no such device")
    return graph
@torch.compile(backend=failing)
def model(x, count):
    x = x.sin() * count
    torch._dynamo.graph_break()
    return x.cos()
try:
    model(torch.ones(4, 2), 3)
except Exception as problem:
    print(type(problem).__name__)
""")
    done = run(f"import runpy; runpy.run_path({str(script)!r})", tmp_path)
    assert done.stdout == "BackendCompilerFailed\n", done.stderr
    (path,) = (tmp_path / "reprokit-out").iterdir()
    document = reprokit("capture", path, "--json", cwd=tmp_path).json
    assert "torch_dynamo_resume_in_model" in document["reason"]
    (program,) = document["programs"]
    assert "def failing(graph, inputs):" in program["text"]
    assert program["text"].endswith("torch.compile(model, backend=failing)(x, 3)\n"), program[
        "text"
    ]


@pytest.mark.real("it reduces and proves a program in the jail")
def test_a_recompile_limit_is_written(tmp_path: Path) -> None:
    """Without fullgraph=True, torch only warns and the program goes on."""
    script = tmp_path / "train.py"
    script.write_text("""
import reprokit, torch
reprokit.watch(on_failure="record")
@torch.compile(backend="eager")
def scale(x):
    return x * len(NAME)
for count in range(12):
    NAME = "a" * count
    scale(torch.ones(3))
""")
    text = f"import runpy; runpy.run_path({str(script)!r})"
    assert run(text, tmp_path).stderr.count("reprokit: a compile failed") == 1
    (path,) = (tmp_path / "reprokit-out").iterdir()
    record = reprokit("capture", path, cwd=tmp_path)
    assert record.out.startswith("recompile-limit: compile 0/8 of scale was refused after 8 comp")
    document = reprokit("capture", path, "--yes", "--json", "--budget", "20s", cwd=tmp_path).json
    assert document["answer"] == "fails" and document["why"].startswith("recompile-limit"), document
    assert document["programs"][0]["source"] == "the calls that were compiled again"
    assert 0 < len(document["repro"].splitlines()) < 20, document["repro"]


def test_a_wrong_word_is_refused() -> None:
    import reprokit as package

    with pytest.raises(ValueError, match="on_failure is 'pack'"):
        package.watch(on_failure="pack")
