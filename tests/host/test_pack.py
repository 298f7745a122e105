"""The same run gives the same bytes; what is too big is trimmed in a stated order and said."""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.redactor import Redactor
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.host.pack import placeholder_counts, reader, writer
from reprokit.host.run.run_directory import make_folders

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


def test_what_was_hidden_is_counted(tmp_path: Path) -> None:
    """The manifest and the README count the placeholders of each kind and file, also of compressed
    traces; a program is named.
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
    said: list[str] = []
    path = tmp_path / "pack.tar.gz"
    path.write_bytes(
        writer.build_tarball(draft, lambda contents, trimmed, hidden: said.append(hidden) or hidden)
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
        said[-1]
        == "2 secrets, 1 e-mail address, 1 user name, 1 home folder, in 8 places of 5 files; 1 in"
        " candidate.py"
    )


def test_nothing_hidden_is_said() -> None:
    """A pack in which nothing was hidden says so."""
    assert (
        placeholder_counts.counts_sentence(
            placeholder_counts.count_placeholders({"x.txt": b"<user>:f < torch, a < b > c"})
        )
        == "nothing was hidden"
    )


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    """No clock, no user, no order of the file system enters a pack."""
    run = a_run(tmp_path)
    packs = []
    for _ in range(2):
        packs.append(writer.build_tarball(writer.gather_files(run, Redactor()), readme))
        os.utime(run / "logs" / "stderr.txt", (1, 1))
    assert packs[0] == packs[1]


def test_what_enters_is_redacted_and_whole(tmp_path: Path) -> None:
    """Drafts, links and empty files stay out; secrets become placeholders; the manifest holds."""
    path = tmp_path / "p.tar.gz"
    path.write_bytes(
        writer.build_tarball(
            writer.gather_files(
                a_run(tmp_path / "run"), Redactor(PrivateNames(users=("mkowalski",)))
            ),
            readme,
        )
    )
    found = reader.read_pack(path)
    assert set(found.files) == {
        "README.md",
        "manifest.json",
        "logs/stderr.txt",
        "journal/9.jsonl",
        "trace/dedicated.log.gz",
        "graphs/0001/graph.py",
        "samples.csv",
    }
    assert b"ghp_" not in found.files["logs/stderr.txt"]
    assert b"mkowalski" not in found.files["journal/9.jsonl"]


def draft_of(files: dict[str, bytes]) -> writer.PackDraft:
    return writer.PackDraft(files=dict(files))


def test_chromium_events_go_first(tmp_path: Path) -> None:
    """They are four fifths of a trace and tell least; the graphs in it stay."""
    noise = b"".join(
        b'V 1] {"chromium_event": {}}\n\t' + os.urandom(30).hex().encode() + b"\n"
        for _ in range(2000)
    )
    draft = draft_of({"trace/a.log": noise + GRAPH, "logs/stderr.txt": b"kept"})
    data = writer.build_tarball(draft, readme, most_bytes=20_000)
    assert len(data) <= 20_000
    assert draft.trimmed == ["trace: 2000 chromium events"]
    assert gzip.decompress(draft.files["trace/a.log.gz"]) == GRAPH


def test_trimming_follows_its_order_until_it_fits() -> None:
    """Traces, samples, journals, logs, graphs, stacks; the verdict, the issue and the repro never
    go.
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
    data = writer.build_tarball(draft, readme, most_bytes=300_000)
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
    """Half a line must not hide half a secret from the redaction."""
    run = a_run(tmp_path)
    line = "x" * 50 + " ghp_" + "a" * 36 + "\n"
    (run / "logs" / "stderr.txt").write_text(line * (writer.LOG_BYTES // len(line) * 2))
    draft = writer.gather_files(run, Redactor())
    text = draft.files["logs/stderr.txt"].decode()
    assert "<<cut " in text and "ghp_" not in text and "aaaa" not in text
    assert draft.trimmed[0].startswith("logs/stderr.txt:")


PARTS = st.binary(min_size=1, max_size=40).map(lambda b: b.replace(b"/", b"_").replace(b"\0", b"_"))
FOLDERS = st.sampled_from(["logs", "stacks", "graphs", "journal", "eager/logs", "escalate"])
ENDINGS = st.sampled_from([b".txt", b".json", b".py", b".log", b".jsonl"])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(FOLDERS, st.lists(PARTS, max_size=4), PARTS, ENDINGS), min_size=1, max_size=6
    )
)
def test_no_name_in_a_run_directory_makes_a_pack_that_is_refused(
    names: list[tuple[str, list[bytes], bytes, bytes]],
) -> None:
    """Any bytes that a file system takes: each file that is gathered is in the pack, and the pack
    can be read.
    """
    with tempfile.TemporaryDirectory() as place:
        run = Path(place) / "run"
        for folder, parts, name, ending in names:
            path = os.path.join(os.fsencode(run), folder.encode(), *parts, name + ending)
            with contextlib.suppress(OSError):  # a file where a folder is wanted
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(b"{}\n")
        packed = Path(place) / "p.tar.gz"
        draft = writer.gather_files(run, Redactor())
        count = len(draft.files)
        packed.write_bytes(writer.build_tarball(draft, readme))
        assert len(reader.read_pack(packed).files) == count + 2  # with the manifest and the README


def test_more_files_than_a_pack_may_hold_are_left_out(tmp_path: Path) -> None:
    """Folders go whole, and the pack says so: one that no command reads would be none."""
    files = {f"eager/logs/{n}.txt": b"x" for n in range(writer.MOST_FILES)} | {
        "verdict.json": b"{}\n",
        "logs/a.txt": b"x",
    }
    draft = draft_of(files)
    draft.trimmed += [f"logs/{n}.txt: 7 bytes cut from its middle" for n in range(3000)]
    packed = tmp_path / "p.tar.gz"
    packed.write_bytes(writer.build_tarball(draft, readme))
    found = reader.read_pack(packed)
    assert {"verdict.json", "logs/a.txt"} <= set(found.files) and not any(
        n.startswith("eager/") for n in found.files
    )
    assert any("eager" in row for row in found.manifest["trimmed"])
