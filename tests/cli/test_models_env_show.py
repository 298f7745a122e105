"""models, env and show, as text and as JSON."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from reprokit.cli.shared import out, print_report
from reprokit.core.shared.zoo import ZOO
from reprokit.host.system.child_commands import own_command
from tests.core.test_trace_records import TRACE, line, of
from tests.support.damaged_files import build_pack
from tests.support.environments import clean_environ, with_small_torch
from tests.support.reprokit_calls import reprokit


def test_models_lists_the_zoo() -> None:
    """The list has every model with its parameters."""
    done = reprokit("models")
    assert done.status == 0
    for name in ZOO:
        assert name in done.out
    assert "41.6 B" in done.out
    models = reprokit("models", "--json").json
    assert {m["name"]: m["parameters"] for m in models["models"]} == {
        n: m.parameters for n, m in ZOO.items()
    }


@pytest.mark.real
def test_env_prints_the_environment_of_a_pack() -> None:
    """The facts, the text of collect_env, and why something is missing; secrets and names are
    redacted.
    """
    env = clean_environ(
        HF_TOKEN="hf_" + "a" * 34,
        TORCHINDUCTOR_CACHE_DIR="/home/janedoe/cache",
        CUDA_VISIBLE_DEVICES="0",
    )
    done = reprokit("env", "--json", env=env)
    assert done.status == 0
    environment = done.json
    facts = environment["environment"]
    assert facts["torch"]["version"].startswith("2.")
    assert facts["python"]["version"].startswith(f"{sys.version_info[0]}.{sys.version_info[1]}")
    assert "torch" in facts["packages"]
    assert facts["cpu"]["logical"] >= 1 and facts["memory"]["total_bytes"] > 0
    assert "g++" in facts["compiler"]
    wanted = {k: v for k, v in facts["variables"].items() if k.startswith(("CUDA", "TORCH"))}
    assert wanted == {
        "CUDA_VISIBLE_DEVICES": "0",
        "TORCHINDUCTOR_CACHE_DIR": "<home>/cache",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }
    assert "symm_mem" in json.dumps(facts["symmetric_memory"])
    assert "PyTorch version" in environment["collect_env"]
    assert "janedoe" not in done.out and "aaaaaaaa" not in done.out
    for row in environment["missing"]:
        assert row["what"].startswith("environment: ") and row["why"]


def test_env_with_an_interpreter_that_lacks_torch(tmp_path: Path) -> None:
    """A fact that cannot be found is reported with its reason, and is not an error."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    done = reprokit("env", "--json", "--python", tmp_path / "bare" / "bin" / "python")
    assert done.status == 0
    whats = {m["what"] for m in done.json["missing"]}
    assert {"environment: torch", "environment: collect_env"} <= whats


@pytest.mark.real
@pytest.mark.parametrize("words", ["env", "env --hooks", "models", "models hf:bert"])
def test_a_command_imports_nothing_from_the_current_folder(words: str, tmp_path: Path) -> None:
    """A folder with a file json.py, torch.py or any other name of a module changes no answer."""
    others = {"torch", "triton", "transformers", "click", "rich", "psutil", "msgspec", "reprokit"}
    for name in sys.stdlib_module_names | others:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(f'{__name__} of the folder ran')")
    done = subprocess.run(
        own_command("reprokit", *words.split()),
        cwd=tmp_path,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "of the folder ran" not in done.stdout + done.stderr


def test_python_m_reprokit_imports_nothing_from_the_current_folder(tmp_path: Path) -> None:
    """Of the names of modules, runpy of Python itself imports some before reprokit is started."""
    for name in ("json", "click", "dataclasses", "subprocess"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the folder ran')")
    done = reprokit("models", cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.status == 0, done.err


def test_show_prints_and_verifies(tmp_path: Path) -> None:
    """The title, the reason and every file, or one file on request; control characters never reach
    the terminal.
    """
    program = r"import torch; print('\x1b[31mred'); raise SystemExit(3)"
    captured = reprokit(
        *("capture", "--json", "--output-dir", tmp_path, "--", sys.executable, "-c", program),
        env=clean_environ(PYTHONPATH=with_small_torch(tmp_path)),
    ).json
    done = reprokit("show", captured["pack"])
    assert done.status == 0
    assert captured["signature"]["id"] in done.out and "manifest.json" in done.out
    issue = reprokit("show", captured["pack"], "--file", "issue.md")
    assert issue.out == Path(captured["issue"]).read_text()
    log = reprokit("show", captured["pack"], "--file", "logs/stdout.txt")
    assert "\x1b" not in log.out and "red" in log.out
    shown = reprokit("show", captured["pack"], "--json").json
    assert shown["verified"] is True and shown["files"]["issue.md"] > 0
    assert "logs/stdout.txt" in reprokit("show", captured["pack"], "--page").out
    assert "logs/stdout.txt" not in done.out and "logs/ (" in done.out
    wrong = reprokit("show", captured["pack"], "--file", "nothing")
    assert wrong.status == 2 and "has no file 'nothing'" in wrong.err


def test_show_prints_the_parts_of_a_trace(tmp_path: Path) -> None:
    """Graphs, guards, recompiles, breaks and generated code of each compile, and one line if the
    pack has no trace or a damaged one.
    """
    broken = "Graph break in user code at m.py:7\nGraph Break Reason: x\n\nCall to print\n"
    text = TRACE + "".join(
        (
            line(of(dynamo_cpp_guards_str={}), "guard of \x1b[31mx"),
            line(of(inductor_output_code={}), "async_compile"),
            line(of(artifact={"name": "dynamo_graph_break_reason"}), broken),
            line(of(artifact={"name": "recompile_reasons"}), '["0/0: n == 1"]'),
        )
    )
    for name, data in {
        "good": {"trace/a.log.gz": gzip.compress(text.encode())},
        "none": {},
        "damaged": {"trace/a.log.gz": b"\x1f\x8b" + b"1" * 50},
    }.items():
        (tmp_path / f"{name}.tar.gz").write_bytes(build_pack({"verdict.json": b"{}", **data}))
    parts = ("--graphs", "--guards", "--recompiles", "--breaks", "--kernels")
    done = reprokit("show", tmp_path / "good.tar.gz", *parts)
    assert done.status == 0, done.err
    assert done.out.startswith("compile 0/0 model /home/me/model.py:9\n")
    for part in ("code: h = x @ w", "guard of", "not 0/0: n == 1", "m.py:7: Call to print"):
        assert part in done.out
    assert "async_compile" in done.out and "\x1b" not in done.out
    (row,) = reprokit("show", tmp_path / "good.tar.gz", "--breaks", "--json").json["compiles"]
    assert row["parts"] == {"breaks": ["m.py:7: Call to print"]} and row["error"] == "InductorError"
    for name, part in {"none": "has no trace", "damaged": "is damaged"}.items():
        done = reprokit("show", tmp_path / f"{name}.tar.gz", "--graphs")
        assert done.status == 2 and part in done.err and done.err.count("\n") == 1, done.err


def test_show_folds_what_is_alike(capsys: pytest.CaptureFixture[str]) -> None:
    """Threads with one stack are one entry, without the frames of reprokit; as a whole, nothing is
    folded. No value of a stranger's report ends it.
    """
    frames = [
        {"function": f"f{n}", "place": "<agent>:1" if n == 3 else "a.py:1"} for n in range(20)
    ]
    idle = [{"who": f"thread idle-{n}", "told": "waits", "frames": frames} for n in range(12)]
    other = {"who": "thread main", "told": "works", "frames": frames[:2]}
    head = {"users_line": "a.py:1: x", "avoids": ["this", 3], "advice": None}
    model = {"reason": "it hangs", "head": head, "stacks": [other, *idle, {"frames": 7}, 5]}
    print_report.print_report(model)
    folded = capsys.readouterr().out
    assert "thread idle-0, thread idle-1, thread idle-2 and 9 more have one stack: waits" in folded
    assert folded.count("f12 a") == 1 and "<agent>" not in folded and "... 7 more" in folded
    assert folded.index("your line: a.py:1: x") < folded.index("avoids it: this; 3")
    print_report.print_report(model, is_whole=True)
    whole = capsys.readouterr().out
    assert whole.count("<agent>:1") == 12 and whole.count("f19 a") == 12


def test_show_prints_page_by_page_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pager of the user gets everything; elsewhere the text is printed."""
    pages: list[str] = []
    monkeypatch.setattr(click, "echo_via_pager", lambda text, color: pages.append(text))
    for is_terminal in (False, True):
        monkeypatch.setattr(out.SafePrinter, "isatty", lambda self, is_it=is_terminal: is_it)
        with out.RESULTS.paged(is_wanted=True):
            out.RESULTS.print_line("one\x1b[31m row")
    assert pages == ["one row\n"] and capsys.readouterr().out == pages[0]


@pytest.mark.real
@pytest.mark.triton
def test_every_hook_fits_the_installed_torch() -> None:
    """env --hooks has a row for each private symbol; the table says which versions have it.
    Without Triton, the rows of Triton are not expected.
    """
    done = reprokit("env", "--hooks", "--json")
    assert done.status == 0, done.out + done.err
    rows = done.json["hooks"]
    assert len(rows) > 40 and all(row["purpose"] and row["since"] for row in rows)
    assert [row["symbol"] for row in rows if row["expected"] == bool(row["problem"])] == []
    shown = reprokit("env", "--hooks", env={**clean_environ(), "TESTS_HIDE_TRITON": "1"})
    assert "fits" in shown.out and f"{len(rows)} of {len(rows)} rows fit" in shown.out
    refused = reprokit("env", "--hooks", "--python", "/bin/false")
    assert refused.status == 2 and refused.err.count("\n") == 1, refused.err
