"""Known failures, as a user meets them: in a capture, in an issue, and in the command."""

from __future__ import annotations

import html
import json
import sys
from pathlib import Path

import pytest

from reprokit.host.pack import reader
from tests.support.environments import clean_environ
from tests.support.recordings import Recorder
from tests.support.reprokit_calls import CallResult, reprokit

# the failure of pytorch#196570 in a different model, at a different size
IN_A_MODEL = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(12, 5)

    def forward(self, h):
        h = torch.tanh(h) * 3
        bias = torch.full((12, 12), -10000.0)
        n = torch.arange(12)
        bias[n.unsqueeze(0), n.unsqueeze(1)] = 0
        return self.out(torch.softmax(h + bias, dim=-1))

with torch.no_grad():
    torch.compile(Attention().eval())(torch.randn(12, 12))
"""
OWN = """
issue = "team/models#7000"
title = "our backend has no kernel for relu"
kind = "exception"
component = "our backend"
state = "open"
workaround = "torch.relu = torch.sigmoid"
program = '''
import torch

def picky(gm, inputs):
    if any(node.target is torch.relu for node in gm.graph.nodes) and "relu" in str(torch.relu):
        raise NotImplementedError("no kernel for relu")
    return gm.forward

torch.compile(lambda x: torch.relu(x) + 1, backend=picky)(torch.ones(3))
'''
"""


@pytest.fixture(scope="module")
def own_catalogue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalogue of a team, with one entry that was proved."""
    folder = tmp_path_factory.mktemp("catalogue")
    (folder / "models-7000.toml").write_text(OWN)
    words = ("--prove", "7000", "--catalogue", folder, "--write", folder, "--yes")
    done = reprokit("known", "--json", *words, "--python", sys.executable)
    assert done.status == 0, done.out + done.err
    (row,) = done.json["proved"]
    assert (row["answer"], row["recorded"], row["workaround"]) == ("fails", None, "works")
    return folder


@pytest.mark.long
def test_a_workaround_that_does_not_work_is_not_true(tmp_path: Path) -> None:
    """The failure occurs, as recorded, but what should avoid it does not."""
    useless = 'workaround = "torch.manual_seed(1)"'
    entry = OWN.replace('workaround = "torch.relu = torch.sigmoid"', useless)
    (tmp_path / "models-7000.toml").write_text(entry)
    words = ("--prove", "7000", "--catalogue", tmp_path, "--yes", "--python", sys.executable)
    done = reprokit("known", "--json", *words)
    (row,) = done.json["proved"]
    assert (done.status, row["answer"], row["workaround"]) == (1, "fails", "fails"), done.out
    assert not row["is_true"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("old", "answer"),
    [("torch.relu(x) + 1", "works"), pytest.param("nothing", "fails", marks=pytest.mark.long)],
)
def test_a_workaround_in_words_is_proved_with_its_program(
    tmp_path: Path, old: str, answer: str
) -> None:
    """The program with the workaround runs in place of the one that fails."""
    head, program, _ = OWN.replace("torch.relu = torch.sigmoid", "use sigmoid").split("'''")
    changed = program.replace(old, "torch.sigmoid(x) + 2")
    texts = f"{head}'''{program}'''\nworkaround_program = '''{changed}'''\n"
    (tmp_path / "models-7000.toml").write_text(texts)
    words = ("--catalogue", tmp_path, "--write", tmp_path, "--yes", "--python", sys.executable)
    done = reprokit("known", "--prove", "7000", *words)
    assert done.status == (0 if answer == "works" else 1), done.out + done.err
    assert f"; the workaround {answer}" in done.err
    shown = reprokit("known", "7000", "--catalogue", tmp_path).out
    assert "To avoid it: use sigmoid" in shown
    assert ("(works with " in shown) == (answer == "works")


def _capture(script: Path, tmp_path: Path, *words: str | Path) -> CallResult:
    return reprokit(
        *("capture", "--json", "--output-dir", tmp_path / "out", *words),
        *("--", sys.executable, script),
        env=clean_environ(),
    )


def test_a_capture_names_a_known_failure(tmp_path: Path, recorded: Recorder) -> None:
    """Its model and its sizes are others than those of the entry; the issue gets a comment. All
    surfaces show the same decision.
    """
    script = tmp_path / "train.py"
    script.write_text(IN_A_MODEL)
    done = recorded("--", sys.executable, script)
    (known,) = done.json["known"]
    assert (known["issue"], known["how"]) == ("pytorch/pytorch#196570", "same"), done.out
    pack = done.json["pack"]
    decision = done.json["decision"]
    assert (decision["action"], decision["issue"]) == ("comment", "pytorch/pytorch#196570")
    assert decision["url"].endswith("/issues/196570#issue-comment-box") and decision["avoids"]
    files = reader.read_pack(Path(pack)).files
    issue, page = files["issue.md"].decode(), files["report.html"].decode()
    assert "**This failure is known:** `pytorch/pytorch#196570`" in issue
    assert "Comment on pytorch/pytorch#196570" in page and "Open the issue form" not in page
    for text in (issue, page):
        assert html.escape(decision["avoids"]) in html.escape(html.unescape(text))
    shown = reprokit("show", pack)
    assert "known: pytorch/pytorch#196570" in shown.out
    asked = reprokit("known", pack)
    assert asked.status == 0 and "https://github.com/pytorch/pytorch/issues/196570" in asked.out
    filed = reprokit("issue", "--json", pack, "--output-dir", tmp_path / "texts").json
    assert filed["form"] == "comment" and "issues/196570" in filed["url"]
    (path,) = (tmp_path / "texts").iterdir()
    assert path.read_text().startswith("The failure of this issue occurs here: `exception: ")


@pytest.mark.real
def test_a_team_has_its_own_entries(own_catalogue: Path, tmp_path: Path) -> None:
    """An option, or the configuration file, names the folder; other failures are not known."""
    script = tmp_path / "own.py"
    script.write_text(OWN.partition("program = '''")[2].partition("'''")[0])
    done = _capture(script, tmp_path, "--catalogue", own_catalogue)
    (known,) = done.json["known"]
    assert (known["issue"], known["how"]) == ("team/models#7000", "same")
    assert known["origin"] == str(own_catalogue)
    (tmp_path / "reprokit.toml").write_text(
        f'catalogue = ["{own_catalogue}"]\npython = "{sys.executable}"\n'
    )
    asked = reprokit("known", done.json["pack"], cwd=tmp_path)
    assert asked.status == 0, asked.out + asked.err
    assert "known: team/models#7000 (open; fails with " in asked.out
    assert "To avoid it: torch.relu = torch.sigmoid (works with " in asked.out
    without = reprokit("known", "--json", done.json["pack"])
    assert without.status == 1 and all(row["how"] != "same" for row in without.json["matches"])


@pytest.mark.real
def test_an_entry_that_is_no_longer_true_fails(own_catalogue: Path, tmp_path: Path) -> None:
    """Exit code 1, and a line that says what the entry says."""
    text = (own_catalogue / "models-7000.toml").read_text()
    (tmp_path / "models-7000.toml").write_text(
        text.replace('raise NotImplementedError("no', '("no')
    )
    words = ("7000", "--catalogue", tmp_path, "--python", sys.executable)
    refused = reprokit("known", "--prove", *words)
    assert refused.status == 2 and "add --yes to run them" in refused.err
    done = reprokit("known", "--prove", "--yes", *words)
    assert done.status == 1, done.out + done.err
    assert "passes, and the entry says: fails" in done.err
    assert "0 of 1 runs are as the catalogue says" in done.out


@pytest.mark.real
def test_entries_are_found_by_number_and_words(own_catalogue: Path) -> None:
    by_number = reprokit("known", "--json", "196570")
    assert by_number.status == 0
    assert by_number.json["matches"][0]["issue"] == "pytorch/pytorch#196570"
    by_words = reprokit("known", "--json", "backend kernel relu", "--catalogue", own_catalogue)
    assert by_words.json["matches"][0]["issue"] == "team/models#7000"
    nothing = reprokit("known", "zebras cross roads")
    assert nothing.status == 1 and "not known" in nothing.out
    message = "RuntimeError: " + "no such thing " * 60
    assert reprokit("known", message).status == 1
    rows = reprokit("known", "--json").json["entries"]
    assert len(rows) >= 60 and "pytorch/pytorch#196570" in {row["issue"] for row in rows}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--catalogue", "/no/such"], "/no/such is no catalogue"),
        (["--python", sys.executable], "--python and --write need --prove"),
        (["absent.tar.gz"], "absent.tar.gz"),
        (["--prove", "zebras"], "no entry of the catalogue matches 'zebras'"),
    ],
)
def test_bad_input_gets_one_line(words: list[str], why: str) -> None:
    done = reprokit("known", *words)
    assert done.status == 2 and why in done.err and len(done.err.splitlines()) == 1, done.err


def test_a_damaged_catalogue_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("issue = 3\n")
    script = tmp_path / "ran.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    done = _capture(script, tmp_path, "--catalogue", tmp_path)
    assert done.status == 2 and "bad.toml is not an entry" in done.err
    assert not (tmp_path / "ran").exists()
    assert json.loads(done.out)["error"]["message"]
