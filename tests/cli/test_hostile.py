"""Text of an untrusted pack, path or ledger does not reach the terminal unchanged and does not
break a command.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reprokit.core.shared.simulation import GPUS
from reprokit.host.pack import reader
from tests.support import damaged_files
from tests.support.environments import ROOT, clean_environ
from tests.support.examples import examples
from tests.support.nightly_results import add_night, cell_result, failing, new_ledger
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

from .test_strangers import SIGNATURE, VERDICT, packed

TEXTS = st.text(
    st.sampled_from("ab/.:=-_\x1b\x07\x9b\u202e\u200b\ufeff\udc80\n\r\t[31m]0;é漢")
    | st.characters(exclude_categories=("Cs",))
    | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF),  # bytes that are not UTF-8
    min_size=1,
    max_size=30,
).filter(lambda text: "\0" not in text and not text.startswith("-"))
CALLS = (
    ("show", "{}"),
    ("show", "{}", "--file", "{}"),
    ("show", "PACK", "--file", "{}"),
    ("show", "PACK", "--{}"),
    ("issue", "{}"),
    ("issue", "PACK", "--output-dir", "/proc/{}"),
    ("replay", "{}"),
    ("replay", "PACK", "--python", "/no/{}"),
    ("replay", "PACK", "--times", "{}"),
    ("minimize", "{}/x.tar.gz"),
    ("minimize", "PACK", "--budget", "{}"),
    ("ablate", "./{}/x"),
    ("workarounds", "./{}/x"),
    ("bisect", "{}"),
    ("check", "{}", "--same-as", "{}", "--exit-zero-if", "bug"),
    ("pack", "{}"),
    ("nightly", "run", "{}"),
    ("nightly", "report", "--output-dir", "{}"),
    ("nightly", "import", "{}"),
    ("nightly", "{}"),
    ("nightly", "init", "/proc/{}"),
    ("nightly", "merge", "{}", "{}"),
    ("{}",),
    ("models", "{}"),
    ("kernel", "{}"),
    ("env", "--python", "/no/{}"),
    ("capture", "/no/{}:make"),
    ("capture", "--gpu", "{}", "llama-tiny"),
)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_no_text_of_a_caller_acts_on_the_terminal(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command, including the errors of click, refuses a path, an option or a name with
    control characters with a clean one-line error.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/no")
    pack = tmp_path / "p.tar.gz"
    pack.write_bytes(packed())
    for call in CALLS:
        damaged_files.check_call(
            tuple(word.replace("{}", text).replace("PACK", str(pack)) for word in call)
        )


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS)
def test_no_text_of_a_ledger_acts_on_the_terminal(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """nightly report cleans titles, reasons and targets of a ledger, and its JSON is plain
    ASCII.
    """
    folder = tmp_path_factory.mktemp("nightly")
    text = text.encode("utf-8", "replace").decode()
    with new_ledger(folder) as store:
        add_night(
            store,
            a=cell_result(failing(text)),
            **{f"b{text}": cell_result(failing("x"), problem=text)},
        )
    damaged_files.check_call(("nightly", "report", "--output-dir", str(folder)))
    status, out, _ = damaged_files.call_reprokit(
        "nightly", "report", "--output-dir", str(folder), "--json"
    )
    assert status in (0, 1) and out.isascii() and not damaged_files.CONTROL - {"\n"} & set(out)
    damaged_files.check_call(("nightly", "export", "--output-dir", str(folder)))


def test_no_text_of_a_pack_acts_on_the_terminal(tmp_path: Path) -> None:
    """Every text of every JSON file and every program of the pack contains control characters."""
    marks = "a\x1b[31m\x1b]0;t\x07\x9b2J\u202e\u2066\u200b\ud800\x7f\x85\u2028\r[bold]b\n"
    row = {
        "phase": marks,
        "seconds": 1.0,
        "name": marks,
        "points": [[0, 1], [1, 2]],
        "unit": "bytes",
        "question": marks,
        "answer": marks,
    }
    frames = {"who": marks, "told": marks, "frames": [{"function": marks, "place": marks}] * 20}
    report = {
        "reason": marks,
        "explain": marks,
        "also": [marks],
        "not_filed": marks,
        "work": {marks: marks},
        "answers": [row],
        "path": [marks],
        "evidence": [marks],
        "growth": {"table": [marks]},
        "ablation": {"sentence": marks},
        "stacks": [frames],
        "timeline": {"phases": [row], "series": [row]},
    }
    text = marks.encode("utf-8", "replace")
    pack = tmp_path / "p.tar.gz"
    pack.write_bytes(
        packed(
            report__json=json.dumps(report).encode(),
            verdict__json=json.dumps({**VERDICT, "reason": marks, "work": {"op": marks}}).encode(),
            signature__json=json.dumps({**SIGNATURE, "title": marks}).encode(),
            repro__py=text,
            **{"issue/describe__md": text},
        )
    )
    for words in (
        ("show",),
        ("show", "--json"),
        ("show", "--file", "repro.py"),
        ("issue",),
        ("issue", "--json"),
    ):
        damaged_files.check_call((words[0], str(pack), *words[1:]))
    damaged_files.check_call(("issue", str(pack), "--output-dir", str(tmp_path / "texts")))
    assert not (damaged_files.CONTROL - {"\n", "\t"}) & set(
        (tmp_path / "texts" / "describe.md").read_text()
    )


@pytest.fixture
def captured(recorded: Recorder) -> CallResult:
    """The pack and the run directory of a failure."""
    sample = ROOT / "samples" / "exception_inductor.py"
    return recorded(f"{sample}:make", name="captured")


def changed(what: str, path: Path, count: int) -> None:
    """Read this number of changed copies in a child process."""
    command = [
        sys.executable,
        "-m",
        "tests.support.damaged_files",
        what,
        str(path),
        "0",
        str(count),
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_a_pack_with_one_changed_value_is_read_or_refused(captured: CallResult) -> None:
    """Different types, deep nesting, huge numbers, surrogates and missing keys in any JSON file
    give a one-line error and no defect.
    """
    changed("packs", Path(captured.json["pack"]), examples(150))


@pytest.mark.parametrize("kind", ["superlinear-compile", "wrong-result", "hang", "kernel"])
def test_other_kinds_of_packs_with_one_changed_value(
    kind: str, captured: CallResult, tmp_path: Path
) -> None:
    """The same holds for data that only some packs have: growth, a GPU, a kernel, an operator that
    differs.
    """
    files = {
        n: d
        for n, d in reader.read_pack(Path(captured.json["pack"])).files.items()
        if n != "manifest.json"
    }
    sizes = [
        {"size": n, "cpu_s": float(n), "is_used": True, "phases": {"codegen": float(n)}}
        for n in (1, 2, 4)
    ]
    observation = {
        "kernel": {"kernel": "k.py"},
        "hang": {"quiet_s": 3.0, "endless_line": "x.py:3"},
        "wrong-result": {"departs_in": "lowerings"},
        "superlinear-compile": {
            "growth": {
                "knob": "layers",
                "at": 8,
                "sizes": sizes,
                "worst": {"phase": "codegen"},
                "table": ["a"],
            }
        },
    }[kind]
    verdict = {"work": {"op": "add"}, **({"kind": kind} if kind != "kernel" else {})}
    more = {
        "observation.json": observation,
        "verdict.json": verdict,
        "run.json": {"gpu": dataclasses.asdict(GPUS["h100"])},
    }
    for name, values in more.items():
        files[name] = json.dumps({**json.loads(files[name]), **values}).encode()
    pack = tmp_path / "p.tar.gz"
    pack.write_bytes(damaged_files.build_pack(files))
    changed("packs", pack, examples(40))


def test_a_run_directory_with_one_changed_file_is_packed_or_refused(captured: CallResult) -> None:
    """The same holds for each JSON file and journal of a run directory; a file may be a folder, and
    a folder a file.
    """
    changed("runs", captured.run_dir, examples(40))


def test_a_kind_that_is_a_path_is_refused(tmp_path: Path) -> None:
    """The working folder of minimize has the name of the kind, so a kind that is a path is
    refused.
    """
    pack = tmp_path / "p.tar.gz"
    pack.write_bytes(
        packed(
            verdict__json=json.dumps({**VERDICT, "kind": "../../../evil"}).encode(),
            repro__py=b"import torch\n",
        )
    )
    for words in (
        ("minimize",),
        ("ablate",),
        ("workarounds",),
        ("bisect", "--good", "2.9.0", "--bad", "2.10.0"),
    ):
        done = reprokit(
            words[0], pack, *words[1:], "--yes", "--output-dir", tmp_path / "out", cwd=tmp_path
        )
        assert done.status == 2 and "its kind or responsible is not a word" in done.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.tar.gz"]
