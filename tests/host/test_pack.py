"""The same run gives the same bytes, and a pack that is too big is trimmed in a fixed order, with a
note.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.judge.signature import ALGORITHM
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.shared.errors import BadInput
from reprokit.host.pack import placeholder_counts, reader, reopen, writer
from reprokit.host.run.run_directory import make_folders
from tests.support import damaged_files
from tests.support.examples import examples

CHROMIUM = b'V1121 00:00:00 1 x.py:1] {"chromium_event": {}}\n\t{"name": "a"}\n'
GRAPH = b'V1121 00:00:00 1 x.py:1] {"dynamo_output_graph": {}}\n\tclass G:\n'


def readme(contents: list[tuple[str, str]], trimmed: list[str], hidden: str) -> str:
    return f"{[name for name, _ in contents]} {trimmed}"


def a_run(path: Path) -> Path:
    make_folders(path)
    (path / "logs" / "stderr.txt").write_text("token ghp_" + "a" * 36 + "\n")
    (path / "stacks" / "faulthandler-9.txt").write_text("")
    (path / "journal" / "9.jsonl").write_text('{"ev":"begin","user":"mkowalski"}\n')
    (path / "journal" / "9.now").write_bytes(b"1 line x")
    (path / "trace" / "dedicated.log").write_bytes(CHROMIUM * 20 + GRAPH)
    (path / "graphs" / "0001").mkdir()
    (path / "graphs" / "0001" / "graph.py").write_text("import torch\n")
    (path / "graphs" / ".draft-1-1").mkdir()
    (path / "graphs" / ".draft-1-1" / "graph.py").write_text("half")
    (path / "logs" / "link.txt").symlink_to("/etc/passwd")
    (path / "samples.csv").write_text("t,pid\n")
    return path


def test_placeholders_are_counted(tmp_path: Path) -> None:
    """The manifest and the README count the placeholders of each kind and file, also in compressed
    traces; a program with placeholders is named.
    """
    run = a_run(tmp_path / "run")
    (run / "logs" / "stdout.txt").write_text(
        "mkowalski of mkowalski@corp.example.com, ghp_" + "b" * 36 + "\n"
    )
    (run / "trace" / "dedicated.log").write_text("/home/mkowalski/x mkowalski\n")
    draft = writer.gather_files(
        run, Redactor(PrivateNames(users=("mkowalski",), homes=("/home/mkowalski",)))
    )
    draft.add_text("candidate.py", "x = '<token-1>'\n")
    sentences: list[str] = []
    path = tmp_path / "pack.tar.gz"
    path.write_bytes(
        writer.build_tarball(
            draft, lambda contents, trimmed, hidden: sentences.append(hidden) or hidden
        )
    )  # type: ignore[func-returns-value]
    counted = reader.read_pack(path).manifest["redacted"]
    assert counted == draft.hidden
    assert counted["kinds"] == {
        "token": {"different": 2, "places": 3},
        "email": {"different": 1, "places": 1},
        "user": {"different": 1, "places": 3},
        "home": {"different": 1, "places": 1},
    }
    assert (
        counted["files"]["trace/dedicated.log.gz"] == 2 and counted["files"]["logs/stdout.txt"] == 3
    )
    assert (
        sentences[-1]
        == "2 secrets, 1 e-mail address, 1 user name, 1 home folder, replaced 8 times in 5 files; 1 in"
        " candidate.py"
    )


def test_a_pack_without_placeholders_says_so() -> None:
    """A pack in which nothing was hidden says so."""
    assert (
        placeholder_counts.counts_sentence(
            placeholder_counts.count_placeholders({"x.txt": b"<user>:f < torch, a < b > c"})
        )
        == "nothing was hidden"
    )


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    """No clock, no user and no file order of the file system affects a pack."""
    run = a_run(tmp_path)
    packs = []
    for _ in range(2):
        packs.append(writer.build_tarball(writer.gather_files(run, Redactor()), readme))
        os.utime(run / "logs" / "stderr.txt", (1, 1))
    assert packs[0] == packs[1]


def test_packed_files_are_redacted_and_complete(tmp_path: Path) -> None:
    """Drafts, links and empty files are left out, secrets become placeholders, and the manifest
    matches.
    """
    path = tmp_path / "p.tar.gz"
    path.write_bytes(
        writer.build_tarball(
            writer.gather_files(
                a_run(tmp_path / "run"), Redactor(PrivateNames(users=("mkowalski",)))
            ),
            readme,
        )
    )
    pack = reader.read_pack(path)
    assert set(pack.files) == {
        "README.md",
        "manifest.json",
        "logs/stderr.txt",
        "journal/9.jsonl",
        "trace/dedicated.log.gz",
        "graphs/0001/graph.py",
        "samples.csv",
    }
    assert b"ghp_" not in pack.files["logs/stderr.txt"]
    assert b"mkowalski" not in pack.files["journal/9.jsonl"]


def draft_of(files: dict[str, bytes]) -> writer.PackDraft:
    return writer.PackDraft(files=dict(files))


def test_chromium_events_go_first(tmp_path: Path) -> None:
    """Chromium events are four fifths of a trace and the least useful part; the graphs in it
    stay.
    """
    noise = b"".join(
        b'V 1] {"chromium_event": {}}\n\t' + os.urandom(30).hex().encode() + b"\n"
        for _ in range(2000)
    )
    draft = draft_of({"trace/a.log": noise + GRAPH, "logs/stderr.txt": b"kept"})
    data = writer.build_tarball(draft, readme, max_bytes=20_000)
    assert len(data) <= 20_000
    assert draft.trimmed == ["trace: 2000 chromium events"]
    assert gzip.decompress(draft.files["trace/a.log.gz"]) == GRAPH


def test_a_limit_of_the_process_is_the_reason_for_a_small_pack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With ``ulimit -f``, a trace is left out although the pack is far below 25 MB."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (20_000, 20_000))
    draft = draft_of({"trace/a.log": os.urandom(30_000), "logs/stderr.txt": b"kept"})
    assert len(writer.build_tarball(draft, readme)) <= 20_000
    (row,) = draft.trimmed
    assert row.endswith(", because a file has at most 20000 bytes here (ulimit -f)")


def test_trimming_follows_its_order_until_it_fits() -> None:
    """Traces, samples, journals, logs, graphs and stacks are trimmed in this order; the verdict,
    the issue and the repro are never trimmed.
    """
    big = {
        "trace/a.log": os.urandom(200_000).hex().encode(),
        "samples.csv": os.urandom(100_000).hex().encode(),
        "journal/1.jsonl": os.urandom(300_000).hex().encode(),
        "logs/stderr.txt": os.urandom(300_000).hex().encode(),
        "issue.md": b"issue",
        "repro.py": b"repro",
    }
    big |= {f"graphs/{n:04d}/graph.py": os.urandom(40_000).hex().encode() for n in range(12)}
    big |= {f"stacks/{n}-py-spy-1.json": os.urandom(40_000).hex().encode() for n in (1, 2, 3)}
    draft = draft_of(big)
    data = writer.build_tarball(draft, readme, max_bytes=300_000)
    assert len(data) <= 300_000
    assert [row.split(":")[0] for row in draft.trimmed] == [
        "trace",
        "samples.csv",
        "journal",
        "logs",
        "graphs",
        "graphs",
        "stacks",
    ]
    assert {"issue.md", "repro.py", "stacks/3-py-spy-1.json"} <= set(draft.files)
    small = draft_of({"logs/stderr.txt": b"x"})
    writer.build_tarball(small, readme)
    assert small.trimmed == []


def test_a_long_log_is_cut_at_line_ends(tmp_path: Path, monkeypatch: object) -> None:
    """A half line must not hide a half secret from the redaction."""
    run = a_run(tmp_path)
    line = "x" * 50 + " ghp_" + "a" * 36 + "\n"
    (run / "logs" / "stderr.txt").write_text(line * (writer.MAX_LOG_BYTES // len(line) * 2))
    draft = writer.gather_files(run, Redactor())
    text = draft.files["logs/stderr.txt"].decode()
    assert "<<cut " in text and "ghp_" not in text and "aaaa" not in text
    assert draft.trimmed[0].startswith("logs/stderr.txt:")


PARTS = st.binary(min_size=1, max_size=40).map(lambda b: b.replace(b"/", b"_").replace(b"\0", b"_"))
FOLDERS = st.sampled_from(["logs", "stacks", "graphs", "journal", "eager/logs", "escalate"])
ENDINGS = st.sampled_from([b".txt", b".json", b".py", b".log", b".jsonl"])


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(FOLDERS, st.lists(PARTS, max_size=4), PARTS, ENDINGS), min_size=1, max_size=6
    )
)
def test_any_file_name_in_a_run_directory_gives_a_readable_pack(
    names: list[tuple[str, list[bytes], bytes, bytes]],
) -> None:
    """A file name may have any bytes that the file system accepts: each gathered file is in the
    pack, and the pack can be read.
    """
    with tempfile.TemporaryDirectory() as temporary:
        run = Path(temporary) / "run"
        for folder, parts, name, ending in names:
            path = os.path.join(os.fsencode(run), folder.encode(), *parts, name + ending)
            with contextlib.suppress(OSError):  # a file in the position of a folder
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(b"{}\n")
        packed = Path(temporary) / "p.tar.gz"
        draft = writer.gather_files(run, Redactor())
        count = len(draft.files)
        packed.write_bytes(writer.build_tarball(draft, readme))
        assert len(reader.read_pack(packed).files) == count + 2  # with the manifest and the README


def test_files_beyond_the_limit_of_a_pack_are_left_out(tmp_path: Path) -> None:
    """Entire folders are left out with a note, because no command could read a pack with more
    files.
    """
    files = {f"eager/logs/{n}.txt": b"x" for n in range(writer.MAX_FILES)} | {
        "verdict.json": b"{}\n",
        "logs/a.txt": b"x",
    }
    draft = draft_of(files)
    draft.trimmed += [f"logs/{n}.txt: 7 bytes cut from its middle" for n in range(3000)]
    packed = tmp_path / "p.tar.gz"
    packed.write_bytes(writer.build_tarball(draft, readme))
    pack = reader.read_pack(packed)
    assert {"verdict.json", "logs/a.txt"} <= set(pack.files) and not any(
        n.startswith("eager/") for n in pack.files
    )
    assert any("eager" in row for row in pack.manifest["trimmed"])


@pytest.mark.parametrize("data", [b"[]", b"3", b"null"])
def test_a_document_that_is_not_an_object_is_refused(tmp_path: Path, data: bytes) -> None:
    """A JSON file of a pack must be an object, and a file that is not there is an empty one."""
    pack = reader.PackFiles(tmp_path / "p.tar.gz", {"run.json": data}, {"run.json": 1}, {})
    assert pack.read_json("report.json") == {}
    with pytest.raises(BadInput, match=r"p\.tar\.gz has a run\.json .*: it is not an object$"):
        pack.read_json("run.json")


def test_a_pack_of_too_many_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pack may have as many files as the limit, with its manifest, and not one more."""
    path = tmp_path / "p.tar.gz"
    path.write_bytes(damaged_files.build_pack({f"{n}.txt": b"" for n in range(4)}))
    monkeypatch.setattr(reader, "MAX_FILES", 5)
    assert len(reader.read_pack(path).sizes) == 5
    monkeypatch.setattr(reader, "MAX_FILES", 4)
    with pytest.raises(BadInput, match=r"was refused: it has more than 4 files"):
        reader.read_pack(path)


DOCUMENTS = {
    "verdict.json": {"kind": "exception", "phase": "codegen", "cause": None, "reason": "raised"},
    "signature.json": {"id": "0" * 12, "title": "exception: codegen | E", "algorithm": ALGORITHM},
}


def packed(path: Path, **documents: Any) -> Path:
    """Write a pack with these JSON files, whose names have no ending; None leaves one out."""
    rows = DOCUMENTS | {f"{name}.json": value for name, value in documents.items()}
    path.write_bytes(
        damaged_files.build_pack(
            {n: json.dumps(value).encode() for n, value in rows.items() if value is not None}
        )
    )
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"verdict": None}, "has no verdict.json or no signature.json"),
        ({"signature": None}, "has no verdict.json or no signature.json"),
        (
            {"signature": {"algorithm": 1}},
            f"was signed with algorithm 1 and this reprokit signs with {ALGORITHM}; capture it"
            " again, or use the reprokit that made it",
        ),
        ({"signature": {}}, "was signed with algorithm None and this reprokit signs with"),
    ],
)
def test_a_pack_without_its_verdict_is_not_opened(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    """A pack without its records, or of a different version of the signature, says why no command
    can work on it.
    """
    with pytest.raises(BadInput) as refusal:
        reopen.open_pack(packed(tmp_path / "p.tar.gz", **change))
    assert str(refusal.value).startswith(f"{tmp_path / 'p.tar.gz'} {why}")


@pytest.mark.parametrize(
    ("reduction", "cpu_s", "rate"),
    [
        (None, 0.0, 1.0),
        ({"cpu_s": 12.5, "rate": 0.4}, 12.5, 0.4),
        ({"cpu_s": "12", "rate": 7}, 0.0, 1.0),
        ({"cpu_s": 1e300, "rate": -3}, 0.0, 0.0),
    ],
)
def test_the_cost_and_the_rate_of_a_reduction_are_read(
    tmp_path: Path, reduction: dict[str, Any] | None, cpu_s: float, rate: float
) -> None:
    """A pack has the CPU seconds of its reduction and the share of failing runs; impossible numbers
    are not believed.
    """
    opened = reopen.open_pack(packed(tmp_path / "p.tar.gz", minimize=reduction))
    assert (opened.reduction_cpu_s, opened.failure_rate) == (cpu_s, rate)


def test_the_middle_of_a_packed_trace_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace of the run directory is packed; its limit is for the text, also if it is cut short."""
    run = tmp_path / "run"
    (run / "trace").mkdir(parents=True)
    lines = [b"line %d\n" % number for number in range(3000)]
    (run / "trace" / "a.log.gz").write_bytes(
        gzip.compress(b"".join(lines)) + gzip.compress(b"end\n")[:-9]
    )
    evidence = (("trace", (".log", ".gz"), 2000),)
    monkeypatch.setattr(writer, "EVIDENCE", evidence)
    draft = writer.gather_files(run, Redactor())
    text = draft.files["trace/a.log"].decode()
    assert text.startswith("line 0\n") and text.endswith("line 2999\nend\n") and len(text) < 2200
    (trimmed,) = draft.trimmed
    assert trimmed.startswith("trace/a.log: ") and trimmed.endswith("bytes cut from its middle")
