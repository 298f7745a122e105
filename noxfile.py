"""The checks of this repository. ``nox -l`` lists them; ``nox`` runs lint, types and quick tests.

The sessions run in the environment that is active, such as the one that the README's second command
makes: torch is too large for an environment of each session.
"""

from __future__ import annotations

import os
import sys

import nox

PYTHON = sys.executable
LINT_IMPORTS = "from importlinter.cli import lint_imports_command as run; run()"
OLDEST_AND_NEWEST = ("2.9.1", "2.15.0")
PYTEST = (PYTHON, "-m", "pytest")
# each session starts many processes that import the same modules
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "quick"]


@nox.session
def lint(session: nox.Session) -> None:
    """Style, format and the direction of imports."""
    session.run(PYTHON, "-m", "ruff", "check", ".")
    session.run(PYTHON, "-m", "ruff", "format", "--check", ".")
    session.run(PYTHON, "-c", LINT_IMPORTS)


@nox.session
def types(session: nox.Session) -> None:
    """Strict mypy."""
    session.run(PYTHON, "-m", "mypy")


@nox.session
def quick(session: nox.Session) -> None:
    """The tests that start no process with torch, in at most two minutes."""
    session.run(*PYTEST, "-n", "3", "-m", "quick", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """The quick and the real tests, with the CPU seconds of the most expensive ones."""
    session.run(*PYTEST, "-n", "4", "-m", "not long", "--cpu-times", "15", *session.posargs)


@nox.session(name="long")
def long_tests(session: nox.Session) -> None:
    """The long tests, and the tests of recorded captures with captures that are started anew.

    It prints the line of a crontab that runs it each night.
    """
    words = (
        "-n",
        "2",
        "-m",
        "long or recorded or hypothesis",
        "--captures",
        "fresh",
        "--cpu-times",
        "15",
    )
    session.run(*PYTEST, *words, *session.posargs)
    session.log(f"each night: 17 2 * * * cd {os.getcwd()} && git pull -q && .venv/bin/nox -s long")


@nox.session
def record(session: nox.Session) -> None:
    """Record captures again: ``nox -s record -- tests/cli/test_silent.py``."""
    session.run(*PYTEST, "-n", "2", "-m", "recorded", "--captures", "record", *session.posargs)


@nox.session
def versions(session: nox.Session) -> None:
    """What works with the oldest and the newest torch, compared with the recorded version matrix.

    The session builds an environment for each of them, of five to seven gigabytes, and deletes it.
    """
    checks = ("hooks", "kernel", "comparison")
    words = ("--versions", *OLDEST_AND_NEWEST, "--only", *checks, "--compare", "--delete")
    env = {
        "UV_NO_CACHE": "1",  # each environment is used once, and compiles only what it imports
        # with these, too, the checks of both versions give the recorded answers
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "REPROKIT_PROOFS": "1",
    }
    session.run(PYTHON, "-m", "benchmarks", "run", "version_matrix", *words, env=env)


@nox.session
def catalogue(session: nox.Session) -> None:
    """The programs of the catalogue of known failures: each entry must still be true."""
    session.run(PYTHON, "-m", "reprokit", "known", "--prove", "--python", PYTHON)


@nox.session
def gpu(session: nox.Session) -> None:
    """The checks on a CUDA device, at most 30 minutes: ``nox -s gpu -- --gpu-results FILE``."""
    session.run(
        PYTHON, "-m", "pytest", "-n", "0", "-m", "gpu", "-rs", "tests/gpu", *session.posargs
    )


@nox.session
def docs(session: nox.Session) -> None:
    """The documentation site, built strictly, and the tests of what it says."""
    session.run(PYTHON, "-m", "mkdocs", "build", "--strict", env={"NO_MKDOCS_2_WARNING": "1"})
    session.run(PYTHON, "-m", "pytest", "tests/test_docs.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """The measurements: ``nox -s bench`` lists them, ``nox -s bench -- run startup`` runs one."""
    session.run(PYTHON, "-m", "benchmarks", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Line and branch coverage of the quick and the real tests, with all processes they start."""
    folder = os.path.abspath(os.path.join(".nox", "coverage"))
    os.makedirs(folder, exist_ok=True)
    env = {
        "COVERAGE_PROCESS_START": os.path.abspath("tests/coverage.ini"),
        "COVERAGE_FOLDER": folder,
    }
    words = ("-p", "tests.support.measured_coverage", "-n", "3", "-m", "not long")
    session.run(*PYTEST, *words, *session.posargs, env=env, success_codes=[0, 1])
    session.run(PYTHON, "-m", "tests.support.measured_coverage", folder)
