"""Environments are built entirely or not at all, kept, and built once for two callers with the same
request. The tests use real pip and real wheels.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from reprokit.core.shared.errors import BadInput
from reprokit.host.bisect import releases, torch_environments, torch_versions
from reprokit.host.bisect.torch_environments import CannotInstall, InstallOptions, main_error_line
from tests.support.environments import ROOT
from tests.support.processes import wait_until
from tests.support.wheels import write_wheel

RUNS = "__version__ = {version!r}\n"
BROKEN = "raise ImportError('libfancy.so.9: cannot open shared object file')\n"
BUILD = """
import sys
from pathlib import Path
from reprokit.host.bisect import torch_environments as interpreters
options = interpreters.InstallOptions(find_links=(sys.argv[1],), no_index=True, cache=Path(sys.argv[2]), installer="pip")
print(interpreters.obtain_environment("1.0", options, lambda text: print(text, file=sys.stderr)).how)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write wheels of torch: 1.0 and 2.0 can be imported, 3.0 cannot, and 4.0 has a wrong version;
    a second package can be installed beside them.
    """
    folder = tmp_path_factory.mktemp("wheels")
    for version, code in (("1.0", RUNS), ("2.0", RUNS), ("3.0", BROKEN), ("4.0", RUNS)):
        text = code.format(version="4.1" if version == "4.0" else version)
        write_wheel(folder, "torch", version, {"torch/__init__.py": text})
    write_wheel(folder, "beside", "7.0", {"beside/__init__.py": ""})
    return folder


@pytest.fixture(autouse=True)
def plain_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove this machine's settings of pip."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Set variables of a user's environment that would disturb every build."""
    (tmp_path / "mine" / "torch").mkdir(parents=True)
    (tmp_path / "mine" / "torch" / "__init__.py").write_text("__version__ = '99.0'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "mine"))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "mine"))
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "mine"))
    monkeypatch.setenv("PIP_REQUIRE_VIRTUALENV", "1")
    yield tmp_path / "mine"


def options(wheels: Path, cache: Path, *packages: str) -> InstallOptions:
    return InstallOptions(
        find_links=(str(wheels),), no_index=True, cache=cache, installer="pip", packages=packages
    )


def test_an_environment_is_built_once_and_without_the_users_settings(
    wheels: Path, tmp_path: Path, hostile: Path
) -> None:
    """The second request installs nothing; PYTHONPATH and pip's settings neither reach the
    environment nor are changed.
    """
    before, messages = dict(os.environ), []
    first = torch_environments.obtain_environment(
        "1.0", options(wheels, tmp_path / "cache", "beside"), messages.append
    )
    again = torch_environments.obtain_environment(
        "1.0", options(wheels, tmp_path / "cache", "beside"), messages.append
    )
    assert (first.torch, first.how, again.how, again.python) == (
        "1.0",
        "built",
        "cached",
        first.python,
    )
    assert messages == ["torch 1.0: building an environment with pip"]
    code = "import torch, beside; print(torch.__file__)"
    with torch_environments.without_user_environment():
        printed = subprocess.run(
            [first.python, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        assert torch_environments.imported_torch_version(first.python) == "1.0"
    assert Path(printed.strip()).is_relative_to(tmp_path / "cache")
    assert dict(os.environ) == before and [p.name for p in hostile.iterdir()] == ["torch"]
    # different indexes, packages or bases give different environments
    folders = {
        torch_environments.environment_folder(
            torch_environments.parse_version(version), sys.executable, chosen
        )
        for version in ("1.0", "2.0")
        for chosen in (
            options(wheels, tmp_path),
            options(wheels, tmp_path, "beside"),
            InstallOptions(cache=tmp_path),
        )
    }
    assert len(folders) == 6


def test_a_version_that_cannot_be_installed_gives_a_one_line_error(
    wheels: Path, tmp_path: Path
) -> None:
    """A missing version, a version that cannot be imported, and a wrong version give the relevant
    line of the output, and no environment is kept.
    """
    says = {
        "9.0": "No matching distribution found for torch==9.0",
        "3.0": "libfancy.so.9: cannot open shared object file",
        "4.0": "but the environment imports 4.1",
    }
    for version, line in says.items():
        with pytest.raises(CannotInstall, match=line) as caught:
            torch_environments.obtain_environment(
                version, options(wheels, tmp_path), lambda text: None
            )
        assert "\n" not in str(caught.value)
    assert [p for p in (tmp_path / "environments").iterdir() if p.is_dir()] == []
    with pytest.raises(CannotInstall, match="reached its deadline"):
        late = InstallOptions(
            find_links=(str(wheels),),
            no_index=True,
            cache=tmp_path,
            installer="pip",
            timeout_s=0.01,
        )
        torch_environments.obtain_environment("1.0", late, lambda text: None)
    for wrong in ("two", "-r requirements.txt"):
        with pytest.raises(BadInput, match="is not a version"):
            torch_environments.obtain_environment(
                wrong, options(wheels, tmp_path), lambda text: None
            )
    with pytest.raises(BadInput, match="name a package"):
        torch_environments.obtain_environment(
            "1.0", options(wheels, tmp_path, "-rx"), lambda text: None
        )


def test_a_killed_builder_leaves_no_environment_that_is_used(wheels: Path, tmp_path: Path) -> None:
    """After SIGKILL the installer of the builder ends too, and two further builders share one
    environment.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}

    def build() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", BUILD, str(wheels), str(tmp_path)]
        return subprocess.Popen(
            command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    killed = build()
    assert wait_until(lambda: list(tmp_path.glob("environments/*/pyvenv.cfg")))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (folder,) = (p for p in (tmp_path / "environments").iterdir() if p.is_dir())
    assert not (folder / torch_environments.READY_FILE).exists()
    assert wait_until(lambda: not _is_building(folder))
    (folder / "half").touch()
    pair = [build(), build()]
    outputs = [child.communicate() for child in pair]
    assert sorted(out.strip() for out, _ in outputs) == ["built", "cached"], outputs
    assert sum("waiting for it" in err for _, err in outputs) <= 1
    assert (
        json.loads((folder / torch_environments.READY_FILE).read_text()) == {"torch": "1.0"}
        and not (folder / "half").exists()
    )


def _is_building(folder: Path) -> bool:
    mine = str(folder)
    uses = []
    for process in psutil.process_iter():
        try:
            uses.append(any(mine in word for word in process.cmdline()))
        except psutil.Error:
            continue
    return any(uses)


def test_an_environment_with_a_missing_base_is_rebuilt(wheels: Path, tmp_path: Path) -> None:
    """The marker file alone is not enough."""
    folder = torch_environments.environment_folder(
        torch_environments.parse_version("2.0"), sys.executable, options(wheels, tmp_path)
    )
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to("/no/such/python")
    (folder / torch_environments.READY_FILE).write_text('{"torch": "2.0"}')
    assert (
        torch_environments.obtain_environment(
            "2.0", options(wheels, tmp_path), lambda text: None
        ).how
        == "built"
    )


def test_the_index_lists_the_releases(wheels: Path, tmp_path: Path, hostile: Path) -> None:
    """Releases are sorted from the oldest; without an index, the one-line error names the option
    --versions.
    """
    assert [str(v) for v in releases.known_releases(options(wheels, tmp_path))] == [
        "1.0",
        "2.0",
        "3.0",
        "4.0",
    ]
    with pytest.raises(BadInput, match="name them with --versions"):
        releases.known_releases(options(tmp_path / "nothing", tmp_path))


def test_an_interpreter_is_queried_and_its_answer_is_checked(tmp_path: Path) -> None:
    """A missing torch, an unreadable version and a missing interpreter give a one-line error."""
    says = {
        "import sys; sys.exit('no space left')": "no space left",
        "print('none')": "does not report the version",
    }
    for code, line in says.items():
        script = tmp_path / "python"
        script.write_text(f"#!{sys.executable}\n{code}\n")
        script.chmod(0o755)
        with pytest.raises(CannotInstall, match=line):
            torch_environments.imported_torch_version(str(script))
    with pytest.raises(CannotInstall, match="No such file"):
        torch_environments.imported_torch_version(str(tmp_path / "absent"))


def test_the_relevant_line() -> None:
    """The relevant line is found in the output of pip and of uv."""
    pip = (
        "ERROR: Could not find a version that satisfies\nERROR: No matching distribution found for"
        " torch==9\n"
    )
    conflict = (
        "ERROR: Cannot install torch==9 because of conflicts.\nERROR: ResolutionImpossible: for"
        " help visit x\n"
    )
    uv = (
        "Using Python 3.11.7\nerror: No solution found\n  cause: Because there is no version of"
        " torch==9, it is unsatisfiable.\n"
    )
    older = (
        "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no version of"
        " torch==9\n"
    )
    assert main_error_line(pip) == "No matching distribution found for torch==9"
    assert main_error_line(conflict) == "Cannot install torch==9 because of conflicts."
    assert main_error_line(uv).startswith("Because there is no version") and main_error_line(
        older
    ).startswith("Because there")
    assert main_error_line("") == "" and main_error_line("Killed\n") == "Killed"


def test_a_missing_uv_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line says how to install uv, or what to do without it."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="there is no uv; install it"):
        torch_environments._installer_command("python", "uv")


def fake_python(folder: Path, name: str, torch: str) -> str:
    """Write a program that answers as an interpreter with this version of torch; without one, it
    does not run.
    """
    path = folder / name
    answer = f'case "$1" in -I) echo 3 11;; *) echo {torch};; esac' if torch else "exit 3"
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return str(path)


def test_an_interpreter_that_does_not_run_is_left_out_of_a_bisection(tmp_path: Path) -> None:
    """The other interpreters are tried, between the ends that are given by their paths."""
    good, middle, bad = (
        fake_python(tmp_path, f"python-{version}", version)
        for version in ("2.9.1", "2.11.0", "2.13.0")
    )
    broken = fake_python(tmp_path, "broken", "")
    said: list[str] = []
    plan = torch_versions.plan_bisection(
        good, bad, [], [broken, middle], InstallOptions(), said.append
    )
    assert [(c.version, c.python) for c in plan.candidates] == [
        ("2.9.1", good),
        ("2.11.0", middle),
        ("2.13.0", bad),
    ]
    ((unplaced, why),) = plan.unplaced
    assert unplaced == broken and broken in why and f"left out: {why}" in said
    with pytest.raises(BadInput, match="name a different end of the range"):
        torch_versions.plan_bisection(
            fake_python(tmp_path, "no-torch", "no version"), bad, [], [], InstallOptions(), print
        )
