"""What a pack becomes as an issue: nothing is posted, and no text of an untrusted pack is
trusted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from reprokit.core.judge.signature import ALGORITHM
from reprokit.host.pack import writer as packing
from tests.support.reprokit_calls import reprokit

TITLE = "exception: codegen | KeyError: 'buf#' @ torch/_inductor/loop_body.py:get_read_expr"
GITHUB_TITLE = "[inductor] KeyError: 'buf...' in get_read_expr (softmax)"
EVIL = "https://evil.example/"


def make(
    path: Path,
    kind: str = "exception",
    title: str = TITLE,
    drop: str = "",
    issue_title: str = GITHUB_TITLE,
    **more: Any,
) -> Path:
    """Write a pack as capture does, with an address in it."""
    draft = packing.PackDraft()
    party = "triton" if more.get("kernel") else "torch"
    verdict = {
        "kind": kind,
        "phase": "codegen",
        "cause": None,
        "reason": "it was raised",
        "responsible": party,
    }
    draft.add_json("verdict.json", verdict)
    draft.add_json("signature.json", {"id": "0" * 12, "title": title, "algorithm": ALGORITHM})
    draft.add_json("observation.json", more)
    for name in ("describe", "error_logs", "versions"):
        if name != drop:
            draft.add_text(f"issue/{name}.md", f"the {name}\x1b[2J\u202e\n")
    draft.add_text("issue/url.txt", EVIL)
    if issue_title:
        draft.add_text("issue/title.txt", issue_title)
    return packing.write_tarball(
        packing.build_tarball(draft, lambda contents, trimmed, hidden: "readme"),
        path,
        "pack.tar.gz",
    )


def test_each_text_has_its_field(tmp_path: Path) -> None:
    """The output has the form, a file for each field, the tarball with its size, and a search; the
    texts are files that are safe to paste.
    """
    pack = make(tmp_path)
    done = reprokit("issue", pack, "--output-dir", tmp_path / "texts")
    assert done.status == 0 and EVIL not in done.out, done.err
    address = next(
        word
        for word in done.out.split()
        if word.startswith("https://github.com/pytorch/pytorch/issues/new?")
    )
    assert parse_qs(urlsplit(address).query)["title"] == [GITHUB_TITLE]
    assert "repo:pytorch/pytorch is:issue get_read_expr KeyError" in done.out
    assert "MB; GitHub takes 25 MB" in done.out and "Nothing was posted" in done.out
    names = {"Describe the bug": "describe", "Error logs": "error_logs", "Versions": "versions"}
    for field, name in names.items():
        text = (tmp_path / "texts" / f"{name}.md").read_text()
        assert text == f"the {name}?\n"
        assert f"{field:<20} {tmp_path / 'texts' / name}.md" in done.out
    assert len(list((tmp_path / "texts").iterdir())) == 3


def test_a_kernel_goes_to_tritons_form(tmp_path: Path) -> None:
    """This form has two fields, so the error is part of the description."""
    pack = make(
        tmp_path,
        title="exception: ptxas | ptxas: Value 'sm_101a' is not defined",
        kernel="softmax.py",
    )
    done = reprokit("issue", pack, "--json", "--output-dir", tmp_path / "texts")
    issue = done.json
    assert issue["form"] == "triton" and issue["url"].startswith(
        "https://github.com/triton-lang/triton/issues/new?"
    )
    assert [(row["field"], row["files"]) for row in issue["fields"]] == [
        ("Describe the bug", ["issue/describe.md", "issue/error_logs.md"]),
        ("Environment details", ["issue/versions.md"]),
    ]
    assert issue["search"]["query"].startswith("repo:triton-lang/triton is:issue ")
    assert parse_qs(urlsplit(issue["search"]["url"]).query)["q"] == [issue["search"]["query"]]
    assert issue["attach"] == {"path": str(pack), "bytes": pack.stat().st_size, "fits": True}
    assert "the error_logs" in Path(issue["fields"][0]["path"]).read_text()


@pytest.mark.parametrize("kind", ["ok", "error-in-eager", "unknown"])
def test_a_run_without_a_bug_is_not_filed(kind: str, tmp_path: Path) -> None:
    """No address is printed and no file is written."""
    pack = make(tmp_path, kind=kind)
    done = reprokit("issue", pack, "--output-dir", tmp_path / "texts")
    assert done.status == 1 and "is not a bug to file" in done.out and "github.com" not in done.out
    assert not (tmp_path / "texts").exists()
    assert json.loads(reprokit("issue", pack, "--json").out)["is_bug"] is False


def test_an_untrusted_pack(tmp_path: Path) -> None:
    """The pack's title adds no qualifier, no line and no escape sequence; a missing text is
    reported; a folder that is a file is refused.
    """
    pack = make(
        tmp_path,
        title='exception: aot | E: x\n\x1b[2J" repo:evil/x is:open',
        drop="error_logs",
        issue_title="\x1b[2J@someone fix #1\n" + "x" * 9_000,
    )
    done = reprokit("issue", pack)
    assert done.status == 0 and "\x1b" not in done.out
    assert "@ someone fix # 1 xxx" in done.out and "x" * 300 not in done.out
    assert 'is:issue "E" "x 2J repo evil x is open"' in done.out and "repo:evil" not in done.out
    assert "Error logs           nothing: the pack has no text for it" in done.out
    refused = reprokit("issue", pack, "--output-dir", pack)
    assert (
        refused.status == 2
        and refused.err.count("\n") == 1
        and "name a writable --output-dir" in refused.err
    )
    assert reprokit("issue", tmp_path / "absent.tar.gz").status == 2
