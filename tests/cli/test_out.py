"""One module prints. It cleans its text, and a closed stream does not stop it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.cli.shared import out
from tests.support.environments import ROOT

CLI = sorted((ROOT / "reprokit" / "cli").rglob("*.py"))
PRINTS = """
import sys
from reprokit.cli.shared import out
out.RESULTS.print_line(("a title", "bold"))
out.RESULTS.print_table(["name"], [["row"]])
out.RESULTS.print_text("x" * 100_000)
out.PROGRESS.print_line("progress")
with open(sys.argv[1], "w") as file:
    file.write(f"{type(out.RESULTS.problem).__name__} {type(out.PROGRESS.problem).__name__}")
"""


@pytest.mark.parametrize("path", [p for p in CLI if p.name != "out.py"], ids=lambda p: p.name)
def test_nothing_else_prints(path: Path) -> None:
    """No other module of the command line prints, prompts, names a standard stream or opens a
    console.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        text = ast.unparse(node) if isinstance(node, (ast.Call, ast.Attribute)) else ""
        called = text.partition("(")[0]
        assert called not in {
            "print",
            "click.echo",
            "click.secho",
            "click.confirm",
            "click.prompt",
            "Console",
        }, text
        assert text not in {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}, text


@given(st.text(st.characters(codec=None), max_size=80))
def test_no_text_reaches_the_terminal_with_a_character_that_acts(text: str) -> None:
    """Printed text has no control, format, surrogate, private or unassigned character, and no
    separator except a space.
    """
    cleaned = out.clean_text(text)
    acting = [
        c
        for c in cleaned
        if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") and c not in "\n\t"
    ]
    assert not acting
    assert out.clean_text(cleaned) == cleaned


@given(st.text(max_size=3000), st.integers(20, 1000))
def test_a_refusal_is_one_bounded_line(text: str, most: int) -> None:
    """An error line has a bounded length, whatever it quotes."""
    line = out.one_line(text, most)
    assert len(line) <= most + 5 and "\n" not in line


def test_coloured_text_keeps_its_words() -> None:
    """Escape sequences are removed whole, with their parameters."""
    assert (
        out.clean_text("\x1b[1;31mred\x1b[0m \x1b]0;title\x07after \x1b]8;;https://x\x1b\\link")
        == "red after link"
    )


@given(
    st.recursive(
        st.text(st.characters(codec=None)) | st.none() | st.integers(), st.lists, max_leaves=5
    )
)
def test_json_is_plain_ascii(value: object) -> None:
    """--json prints only line ends and characters from space to tilde, and they parse to the same
    value.
    """
    text = out.ascii_json(value, indent=1)
    assert all(c == "\n" or " " <= c <= "~" for c in text)
    assert json.loads(text) == value


@pytest.mark.parametrize("where", ["full", "closed", "left"])
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_printing_never_raises(where: str, stream: str, tmp_path: Path) -> None:
    """A full disk, a closed stream or a reader that exited loses the output and nothing else."""
    problems_file = tmp_path / "problems"
    read, write = os.pipe()
    os.close(read)
    target = {"full": os.open("/dev/full", os.O_WRONLY), "left": write, "closed": None}[where]
    number = 1 if stream == "stdout" else 2
    shell = f"exec {number}>&-; " if target is None else ""
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'{shell}exec "$0" -c "$1" "$2"',
            sys.executable,
            PRINTS,
            str(problems_file),
        ],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        check=False,
        **{
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            **({} if target is None else {stream: target}),
        },
    )
    assert done.returncode == 0
    problems = dict(zip(("stdout", "stderr"), problems_file.read_text().split(), strict=True))
    assert (
        problems[stream]
        == {"full": "OSError", "closed": "NoneType", "left": "BrokenPipeError"}[where]
    )
