"""What a new user sees first: help, a typing mistake, an isolated installation, and the folder of a
capture.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environments import ROOT, SITE, clean_environ, with_small_torch
from tests.support.reprokit_calls import reprokit


@pytest.mark.parametrize("words", [(), ("nightly",)], ids=["reprokit", "nightly"])
def test_without_a_command_the_help_is_printed_as_help(words: tuple[str, ...]) -> None:
    """The output is that of --help, without a line that says that the usage is wrong."""
    bare, explicit = reprokit(*words), reprokit(*words, "--help")
    assert bare.status in (0, 2)  # 0 before click 8.2
    assert (bare.out + bare.err).strip() == explicit.out.strip()
    assert explicit.out.count("\n") > 10


@pytest.mark.real
@pytest.mark.parametrize(
    "target",
    [
        pytest.param("no_such_module:make", marks=pytest.mark.long),
        "targets.py:mkae",
        pytest.param("hf:lama", marks=pytest.mark.long),
    ],
)
def test_a_mistyped_target_leaves_no_folder(target: str, tmp_path: Path) -> None:
    """Neither the default output folder nor a named one is left; a folder that existed before
    stays.
    """
    (tmp_path / "targets.py").write_text("def make(): return None\n")
    (tmp_path / "mine").mkdir()
    before = sorted(tmp_path.iterdir())
    for options in ((), ("--output-dir", "a/b"), ("--output-dir", "mine")):
        done = reprokit(
            "capture",
            target,
            *options,
            cwd=tmp_path,
            env=clean_environ(PYTHONDONTWRITEBYTECODE="1"),
        )
        assert done.status == 2 and "all of its output" not in done.err
        assert sorted(tmp_path.iterdir()) == before
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.real
@pytest.mark.triton
def test_a_gpu_that_cannot_be_simulated_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """One line says why; no run directory is created."""
    broken = tmp_path / "path" / "triton"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('built for another machine')\n")
    folder = tmp_path / "work"
    folder.mkdir()
    environ = clean_environ(PYTHONPATH=f"{SITE}:{ROOT}:{tmp_path / 'path'}")
    done = reprokit("capture", "llama-tiny", "--gpu", "h100", cwd=folder, env=environ)
    assert done.status == 2 and done.err.count("\n") == 1, done.err
    assert "--gpu needs triton" in done.err and "another machine" in done.err
    assert list(folder.iterdir()) == []


def test_a_run_directory_names_its_pack(tmp_path: Path) -> None:
    """show and issue take the pack of the run directory, also if the folder has two packs. Without
    a pack the line says how to make one.
    """
    captures = []
    for word in ("one", "two"):
        done = reprokit(
            "capture",
            "--json",
            "--output-dir",
            tmp_path,
            "--",
            sys.executable,
            "-c",
            f"import torch; print('{word}'); exit(3)",
            env=clean_environ(PYTHONPATH=with_small_torch(tmp_path)),
        )
        captures.append(done.json)
        shutil.copy(done.json["pack"], tmp_path / f"{word}.tar.gz")
        Path(done.json["pack"]).unlink()
    for row, word in zip(captures, ("one", "two"), strict=True):
        shown = reprokit("show", row["run_dir"], "--file", "logs/stdout.txt")
        assert (shown.status, shown.out) == (0, f"{word}\n"), shown.err
        issue = reprokit("issue", row["run_dir"], "--json")
        assert issue.json["pack"] == str(tmp_path / f"{word}.tar.gz"), issue.err
    for pack in tmp_path.glob("*.tar.gz"):
        pack.unlink()
    for command in ("show", "issue"):
        gone = reprokit(command, captures[0]["run_dir"])
        pack = shlex.join(["reprokit", "pack", captures[0]["run_dir"]])
        assert gone.status == 2 and pack in gone.err


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with reprokit and its dependencies, and without torch."""
    place = tmp_path_factory.mktemp("isolated")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "own"], check=True)
    (place / "packages").mkdir()
    for folder in map(Path, sys.path):
        if folder.name == "site-packages":
            for entry in folder.iterdir():
                there = place / "packages" / entry.name
                if (
                    not entry.name.startswith(("torch", "functorch", "triton", "nvidia"))
                    and not there.exists()
                ):
                    there.symlink_to(entry)
    site = next((place / "own").glob("lib/python3*/site-packages"))
    (site / "isolated.pth").write_text(f"{place / 'packages'}\n{ROOT}\n")
    return place / "own" / "bin" / "python"


@pytest.mark.real
@pytest.mark.parametrize("where", ["VIRTUAL_ENV", ".venv"])
def test_an_isolated_install_uses_the_environment_that_is_active(
    where: str, isolated: Path, tmp_path: Path
) -> None:
    """One line names the interpreter. A target runs in it, and a new suite names it."""
    environ = clean_environ(PYTHONPATH=str(SITE), PYTHONDONTWRITEBYTECODE="1")
    environ.pop("VIRTUAL_ENV", None)
    if where == "VIRTUAL_ENV":
        environ["VIRTUAL_ENV"] = sys.prefix
        python = f"{sys.prefix}/bin/python"
    else:
        (tmp_path / ".venv").symlink_to(sys.prefix)
        python = f"{tmp_path}/.venv/bin/python"

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(isolated), "-m", "reprokit", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )

    done = call("capture", "no_such_module:make")
    first, *_, last = done.stderr.splitlines()
    assert first.startswith(f"reprokit: using {python}, ") and where in first, done.stderr
    assert f"'no_such_module' that {python} can import" in last, done.stderr
    assert call("nightly", "init", "suite.toml").returncode == 0
    assert f"\npython = {json.dumps(python)}\n" in (tmp_path / "suite.toml").read_text()


def test_a_suite_for_no_torch_says_what_to_fill_in(isolated: Path, tmp_path: Path) -> None:
    """The suite names no interpreter that cannot run it."""
    environ = clean_environ(PYTHONPATH=str(SITE))
    environ.pop("VIRTUAL_ENV", None)
    command = [str(isolated), "-m", "reprokit", "nightly", "init"]
    subprocess.run(command, cwd=tmp_path, env=environ, check=True, stdout=subprocess.DEVNULL)
    lines = (tmp_path / "suite.toml").read_text().splitlines()
    assert not [line for line in lines if line.startswith("python")]
    assert [line for line in lines if line.startswith("# python = ") and "fill in" in line]
