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
nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests-fast"]


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


@nox.session(name="tests-fast")
def tests_fast(session: nox.Session) -> None:
    """The tests that take less than ten seconds each."""
    session.run(PYTHON, "-m", "pytest", "-n", "3", "-m", "not slow", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """All tests but the long ones, which with the matrix of versions do not fit into 90 minutes."""
    session.run(PYTHON, "-m", "pytest", "-n", "3", "-m", "not long", *session.posargs)


@nox.session(name="tests-long")
def tests_long(session: nox.Session) -> None:
    """The tests that take more than 50 seconds each: whole reductions with their proofs."""
    session.run(PYTHON, "-m", "pytest", "-n", "2", "-m", "long", *session.posargs)


@nox.session
def versions(session: nox.Session) -> None:
    """What works with the oldest and the newest torch, compared with the recorded version matrix.

    The session builds an environment for each of them, of five to seven gigabytes, and deletes it.
    """
    checks = ("hooks", "kernel", "comparison")
    words = ("--versions", *OLDEST_AND_NEWEST, "--only", *checks, "--compare", "--delete")
    # a pip.conf may limit the versions, and each environment is used once
    env = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1"}
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
