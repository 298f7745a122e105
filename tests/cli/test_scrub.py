"""reprokit scrub: from the text of an issue to an answer and a comment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.reprokit_calls import reprokit

BUG = """# [inductor] KeyError in outer-loop fusion

### Describe the bug

```python
def f(x):
    m = torch.full((8, 8), -10000.0)
    m[torch.arange(8).unsqueeze(0), torch.arange(8).unsqueeze(1)] = 0
    return torch.softmax(x + m, dim=-1)
```

and then

```python
torch.compile(f)(torch.randn(8, 8))
```

<details>

```
torch._inductor.exc.InductorError: KeyError: 'buf1'
```
</details>

PyTorch version: 2.14.0+cpu
"""
SPY = """# compiled sum raises

```python
import os
import socket
import torch

seen = [os.environ.get("SECRET", "no secret"), str(os.path.exists(HOME_FILE))]
try:
    socket.create_connection(("192.0.2.1", 80), 1)
except OSError as problem:
    seen.append(type(problem).__name__ + str(problem.errno))
try:
    open("/usr/written", "w")
except OSError as problem:
    seen.append(str(problem.errno))
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(3)))
with open("seen.txt", "w") as file:
    file.write(" ".join(seen))
```
Run it with `TORCHINDUCTOR_FREEZING=1`.

RuntimeError: sum is wrong
"""

CAUGHT = """# torch.compile raises IndexError

```python
import torch


@torch.compile(fullgraph=True)
def f(x):
    return torch.select(x.unsqueeze(1), 1, 1)


try:
    f(torch.ones(3))
except Exception:
    raise SystemExit(1)
```
IndexError: select(): index 1 out of range for tensor of size [3, 1] at dimension 1
"""
IN_EAGER_TOO = """# torch.compile of a module fails

```python
import torch


class Inner(torch.nn.Module):
    def __init__(self):
        pass

    def forward(self, x):
        return x + 1


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x)


torch.compile(Outer())(torch.ones(3))
```
It fails.
"""
NOTEBOOK = """# torch.compile raises "source code not available" in Jupyter

```python
import inspect
import torch


@torch.compile(backend="eager")
def f(x):
    return x + 1


f(torch.ones(3))
print("source:", inspect.getsource(f).count("return"), "__file__" in globals())
```
"""


@pytest.mark.real("it reduces and proves the program of an issue")
def test_a_failing_issue_gets_a_comment(tmp_path: Path) -> None:
    """The blocks become a program, which fails as reported. The comment has the smallest program,
    the responsible part and the known issue. Nothing else is in the folder but the results.
    """
    issue = tmp_path / "issue.md"
    issue.write_text(BUG)
    done = reprokit("scrub", issue, "--yes", "--output-dir", tmp_path / "out", "--json")
    assert (done.status, done.err.count("Traceback")) == (1, 0)
    result = done.json
    assert (result["answer"], result["reported"]["error"]) == ("fails", "KeyError")
    assert result["program"]["lines"] == [6, 15] and result["program"]["added"] == ["import torch"]
    assert result["jail"] in ("bubblewrap", "user namespaces")
    assert result["known"][0]["issue"] == "pytorch/pytorch#196570"
    comment = Path(result["comment"]).read_text()
    assert comment.startswith("**Still fails** with torch ")
    assert "```python\nimport torch\n" in comment and "Responsible: torch, in codegen" in comment
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"comment.md", "run-001"}
    inside = {path.name for path in (tmp_path / "out" / "run-001" / "program-1").iterdir()}
    assert inside == {"0-1", "program.py"}
    written = json.loads((tmp_path / "out" / "run-001" / "scrub.json").read_text())
    assert {**result, "claims": written["claims"]} == written
    first = written["claims"][0]
    assert first["text"].startswith("Still fails with torch ")
    assert [check["how"] for check in first["checks"]] == ["fails"]


@pytest.mark.long
def test_the_comment_says_what_the_proof_shows(tmp_path: Path) -> None:
    """A program that cannot be reduced is not called the smallest one, and has its own proof."""
    (tmp_path / "issue.md").write_text(CAUGHT)
    result = reprokit("scrub", "issue.md", "--yes", "--json", cwd=tmp_path).json
    assert result["answer"] == "fails", result
    comment = Path(result["comment"]).read_text()
    assert "The program of the issue has this failure (12 lines, it fails in 2 of 2 " in comment


@pytest.mark.long
def test_a_failure_without_torch_compile_is_not_that_of_the_compiler(tmp_path: Path) -> None:
    """The program raises the same error in eager, so the report of torch.compile is different."""
    (tmp_path / "issue.md").write_text(IN_EAGER_TOO)
    result = reprokit("scrub", "issue.md", "--yes", "--json", cwd=tmp_path).json
    assert result["answer"] == "different", result
    log = "AttributeError: 'Inner' object has no attribute '_parameters'"
    (tmp_path / "issue.md").write_text(f"{IN_EAGER_TOO}\n```\n{log}\n```\n")
    result = reprokit("scrub", "issue.md", "--yes", "--json", cwd=tmp_path).json
    comment = Path(result["comment"]).read_text()
    assert result["answer"] == "fails" and "Responsible: unknown" in comment, comment
    again = reprokit("pack", Path(result["pack"]).parent / "run-001", "--json")
    assert again.json["verdict"]["responsible"] == "unknown", again.json["verdict"]


@pytest.mark.real("it runs the program as a script and as a cell")
def test_a_report_from_a_notebook_runs_as_a_cell(tmp_path: Path) -> None:
    """``__main__`` has no file, and linecache knows the source. So a pass says something."""
    (tmp_path / "issue.md").write_text(NOTEBOOK)
    result = reprokit("scrub", "issue.md", "--yes", "--json", cwd=tmp_path).json
    assert result["answer"] == "passes", result
    folder = Path(result["comment"]).parent / "run-001" / "program-1"
    assert "source: 1 False" in next(folder.rglob("stdout.txt")).read_text()
    assert "Run as a notebook runs a cell" in Path(result["comment"]).read_text()


@pytest.mark.real("a pass needs two runs in the jail")
def test_a_stranger_sees_nothing_and_a_pass_needs_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program has no network, no variable of the user, no file of the user and no right to
    change the system. It passes twice, so the answer is that it passes.
    """
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    monkeypatch.setenv("SECRET", "a-secret-value")
    issue = tmp_path / "issue.md"
    issue.write_text(SPY.replace("HOME_FILE", repr(str(secret))))
    done = reprokit("scrub", issue, "--yes", "--output-dir", tmp_path / "out", "--json")
    result = done.json
    assert (result["answer"], done.status) == ("passes", 0), result
    assert result["runs"][0]["runs"] == 2 and result["pack"] is None
    assert result["program"]["variables"] == {"TORCHINDUCTOR_FREEZING": "1"}
    seen = (tmp_path / "out" / "run-001" / "program-1" / "seen.txt").read_text()
    assert seen == "no secret False OSError101 30"
    assert Path(result["comment"]).read_text().startswith("**Passes** with torch ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It hangs, see the gist.\n", "the text has no code block"),
        ("```python\ntorch.compile(model)(x)\n```\n", "uses model, x, which no block defines"),
        (
            "```\ntorchrun --nproc-per-node 2 a.py\n```\n"
            "```python\nimport torch\ntorch.compile(torch.nn.Linear(1, 1))\n```\n",
            "torchrun starts several processes",
        ),
    ],
)
def test_a_text_without_a_program_gets_no_answer(tmp_path: Path, text: str, words: str) -> None:
    """Exit code 3, and the reason in one line."""
    (tmp_path / "issue.md").write_text(text)
    done = reprokit("scrub", "issue.md", "--yes", cwd=tmp_path)
    assert (done.status, done.out) == (3, f"cannot tell: {done.out.partition(': ')[2]}")
    assert words in done.out and done.out.count("\n") == 1
    assert reprokit("scrub", "issue.md", "--yes", "--json", cwd=tmp_path).json["why"] in done.out
    assert [path.name for path in tmp_path.iterdir()] == ["issue.md"]


def test_bad_input_gets_one_line(tmp_path: Path) -> None:
    """No file, a binary file, a file that is too large, no consent and a wrong block: exit code 2
    or 3, and nothing runs.
    """
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.md").write_bytes(b"x" * ((256 << 10) + 1))
    (tmp_path / "empty.md").write_text(" \n")
    (tmp_path / "bug.md").write_text(BUG)
    for words, message in (
        (("gone.md", "--yes"), "cannot read gone.md"),
        (("binary.md", "--yes"), "is not UTF-8"),
        (("large.md", "--yes"), "larger than 262144 bytes"),
        (("empty.md", "--yes"), "is empty"),
        (("bug.md",), "add --yes"),
        (("bug.md", "--yes", "--versions", "newest"), "is not a version"),
    ):
        done = reprokit("scrub", *words, "--output-dir", "out", cwd=tmp_path)
        assert (done.status, done.err.count("\n")) == (2, 1) and message in done.err, done.err
    wrong = reprokit("scrub", "bug.md", "--yes", "--block", "9", cwd=tmp_path)
    assert wrong.status == 3 and "there is no block 9" in wrong.out
