"""A notebook as a target: the command that runs its code cells."""

from __future__ import annotations

import subprocess
from pathlib import Path

from reprokit.core.shared.errors import BadInput

RUNNER = Path(__file__).with_name("run_notebook.py")
CHECK_TIMEOUT_S = 60


def is_notebook(target: str) -> bool:
    """Return whether a target names a notebook."""
    return target.endswith(".ipynb")


def command_of_notebook(path: str, python: str) -> tuple[str, ...]:
    """Return the command that runs the code cells of a notebook in the interpreter ``python``.

    Raises BadInput if the notebook cannot run. The interpreter of the target decides what is
    Python.
    """
    notebook = Path(path).expanduser()
    if not notebook.is_file():
        raise BadInput(f"there is no notebook {path}; check the path")
    try:
        done = subprocess.run(
            [python, "-I", str(RUNNER), "--check", str(notebook)],
            capture_output=True,
            text=True,
            timeout=CHECK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise BadInput(f"{path} cannot be checked with {python}: {problem}") from problem
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise BadInput(lines[-1])
    return (python, str(RUNNER), str(notebook))
