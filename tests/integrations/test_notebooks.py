"""Notebooks as targets, and the cell magic in a real IPython."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reprokit.core.shared.errors import BadInput
from reprokit.host.request import command_line
from reprokit.host.request.run_request import Request
from reprokit.host.request.target import parse_command
from reprokit.integrations import cell_magic, notebook_command, run_notebook
from tests.support import warm_processes
from tests.support.environments import ROOT
from tests.support.reprokit_calls import reprokit


def write_notebook(path: Path, *cells: str, **metadata: object) -> Path:
    """Write a notebook with a text cell before its code cells."""
    rows: list[dict[str, object]] = [{"cell_type": "markdown", "metadata": {}, "source": "# A"}]
    for number, source in enumerate(cells):
        lines: object = source.splitlines(keepends=True) if number % 2 else source
        rows.append({"cell_type": "code", "metadata": {}, "outputs": [], "source": lines})
    path.write_text(json.dumps({"nbformat": 4, "metadata": metadata, "cells": rows}))
    return path


def run_cells(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a notebook as ``reprokit capture`` does."""
    command = [sys.executable, str(notebook_command.RUNNER), *options, path.name]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)


CELLS = (
    "%matplotlib inline\nimport sys, neighbour\nx = 1",
    "for i in range(2):\n    !ls \\\n      -la\nprint('after the loop')\nx?",
    "%%time\ny = '''\n%d\n'''\nprint(y.strip() % 3, __name__, sys.argv)",
    "%%bash\nexit 3",
    "def f():\n    return inspect.getsource(f)\nimport inspect\nprint(f())\ndisplay(x)",
    "def fails():\n    raise KeyError(x)\n\nfails()",
    "print('not reached')",
)


def test_the_code_cells_run_as_one_script(tmp_path: Path) -> None:
    """Cells share one __main__, modules beside the notebook can be imported, magics are dropped with
    one line each, text that looks like a magic stays, and a traceback names the cell and the line.
    """
    (tmp_path / "neighbour.py").write_text("")
    done = run_cells(write_notebook(tmp_path / "a b.ipynb", *CELLS))
    assert done.returncode == 1
    lines = ["after the loop", "3 __main__ ['a b.ipynb']", "def f():"]
    assert done.stdout.splitlines()[:3] == lines and done.stdout.endswith("\n1\n")
    for dropped in (
        "cell-1, line 1 does not run: %matplotlib inline",
        "cell-2, line 2 does not run: !ls \\",
        "cell-2, line 5 does not run: x?",
        "cell-4 does not run: %%bash",
    ):
        assert f"reprokit: a b.ipynb, {dropped}\n" in done.stderr
    assert f'File "{tmp_path}/a b.ipynb#cell-6", line 2, in fails\n    raise KeyError(x)' in (
        done.stderr
    )


@pytest.mark.parametrize(
    ("cell", "metadata", "message"),
    [
        ("x = 1\nfiles = !ls", {}, "cell-1, line 2: 'files = !ls' needs IPython"),
        ("x = (\n", {}, "cell-1, line 1: '(' was never closed"),
        ("await f()", {}, "cell-1, line 1: 'await' outside function"),
        ("  ", {}, "has no code cells"),
        (
            "x <- 1",
            {"kernelspec": {"language": "R"}},
            "is a notebook of r, and only Python can run",
        ),
    ],
)
def test_what_cannot_run_is_one_line(
    tmp_path: Path, cell: str, metadata: dict[str, object], message: str
) -> None:
    """The check finds it before anything runs, in the interpreter of the target."""
    path = write_notebook(tmp_path / "bad.ipynb", cell, **metadata)
    with pytest.raises(BadInput, match=r"^[^\n]*$") as refused:
        notebook_command.command_of_notebook(str(path), sys.executable)
    assert message in str(refused.value)
    assert run_cells(path).returncode == 2


def test_a_file_that_is_no_notebook_is_refused(tmp_path: Path) -> None:
    """An old format, other JSON, and no JSON at all each give one line."""
    for text, message in (
        ("{}", "convert it: jupyter nbconvert"),
        ("[]", "convert it"),
        ("[", "is not a notebook"),
    ):
        (tmp_path / "x.ipynb").write_text(text)
        with pytest.raises(run_notebook.NotebookProblem, match=message):
            run_notebook.read_notebook(str(tmp_path / "x.ipynb"))


def test_a_capture_of_a_notebook_is_repeated_by_its_name() -> None:
    """The command line that repeats a capture names the notebook, not how it is run."""
    target = parse_command((sys.executable, "run_notebook.py", "my model.ipynb"), "my model.ipynb")
    assert target.label == "my-model"
    test = parse_command((sys.executable, "-m", "pytest", "tests/test_a.py::TestB::test_c[d]"))
    assert test.label == "test_a-TestB-test_c-d"
    assert command_line.capture_command(Request(target, deadline_s=None, compares=False)) == (
        "reprokit capture 'my model.ipynb'"
    )


def test_wrong_use_of_a_notebook_is_refused(tmp_path: Path) -> None:
    """The command line gives one line and exit code 2, and runs nothing."""
    good = write_notebook(tmp_path / "good.ipynb", "open('ran', 'w')")
    bad = write_notebook(tmp_path / "bad.ipynb", "x = (\n")
    for words, message in (
        ((bad,), "bad.ipynb, cell-1, line 1: '(' was never closed"),
        ((tmp_path / "none.ipynb",), "there is no notebook"),
        ((good, "--mode", "max-autotune"), "--mode changes a model"),
        ((good, "--model", "llama-tiny"), "more than one target was given"),
    ):
        done = reprokit("capture", *words, cwd=tmp_path)
        assert done.status == 2 and message in done.err and done.err.count("\n") == 1, done.err
    assert not (tmp_path / "ran").exists()


IN_IPYTHON = """\
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
for cell in (
    "%load_ext reprokit",
    "import torch, neighbour\\n%precision 3\\ndef masked_softmax(x):\\n"
    "    mask = torch.full((8, 8), -10000.0)\\n"
    "    mask[torch.arange(8).unsqueeze(0), torch.arange(8).unsqueeze(1)] = 0\\n"
    "    return torch.softmax(x + mask, dim=-1)",
    "%%reprokit --cells 7\\n1",
    "%%reprokit\\ntorch.compile(masked_softmax)(torch.randn(8, 8))",
    "%%reprokit --cells 2 --output-dir out\\ntorch.compile(masked_softmax)(torch.randn(8, 8))",
    "print('goes on', masked_softmax(torch.ones(8, 8)).shape)",
):
    shell.run_cell(cell, store_history=True)
"""


@pytest.mark.real
def test_a_cell_is_captured_in_a_process_of_its_own(tmp_path: Path) -> None:
    """%%reprokit runs the cell and the inputs that --cells names in a new process, prints the verdict
    and the pack, and the kernel goes on. A cell that reads a name of another input does not run
    without --cells. Messages name the input and the line, and modules of the kernel's folder
    can be imported.
    """
    (tmp_path / "kernel.py").write_text(IN_IPYTHON)
    (tmp_path / "neighbour.py").write_text("")
    place = {"IPYTHONDIR": str(tmp_path / "ipython")}
    done = warm_processes.run_torch_program(tmp_path / "kernel.py", cwd=tmp_path, **place)
    assert done.returncode == 0, done.stderr
    assert "--cells '7': '7' names no inputs before In[3]" in done.stdout
    unset = "the cell reads `masked_softmax` of In[2], `torch` of In[2]; add --cells 2, or --cells"
    assert f"reprokit: {unset} all for all inputs\n" in done.stdout, done.stdout
    assert "exception in codegen: KeyError was raised" in done.stdout, done.stdout
    assert "In[2], line 2 does not run: %precision 3" in done.stdout
    assert "goes on torch.Size([8, 8])" in done.stdout
    assert len([*(tmp_path / "out").glob("reprokit-cell-*-exception-*.tar.gz")]) == 1
    assert "next       reprokit minimize out/run-001 --budget 900" in done.stdout
    assert '.ipynb#In[5]", line 1, in <module>' in done.stdout
    assert len([*(tmp_path / "reprokit-out").glob("cell-*.ipynb")]) == 1


def test_the_magic_is_loaded_from_the_package() -> None:
    """IPython calls load_ipython_extension of the module that %load_ext names."""
    code = "import reprokit, sys; reprokit.load_ipython_extension; print('IPython' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_a_local_name_of_another_input_is_not_one_that_it_sets() -> None:
    """--cells with that input would not set the name."""
    history = ["", "def f():\n    width = 3\n    return width", "depth = 2"]
    assert cell_magic._unset_names("print(width)", history) == ""
    assert "`depth` of In[2]; add --cells 2" in cell_magic._unset_names("print(depth)", history)
