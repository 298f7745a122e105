"""Environments are built whole or not at all, kept, and built once by two who want the same; with
real pip and real wheels.
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
from reprokit.host.bisect import releases, torch_environments
from reprokit.host.bisect.torch_environments import CannotInstall, InstallOptions, telling_lines

from ..conftest import ROOT, wait_until
from ..wheels import wheel

RUNS = "__version__ = {version!r}\n"
BROKEN = "raise ImportError('libfancy.so.9: cannot open shared object file')\n"
BUILD = """
import sys
from pathlib import Path
from reprokit.host.bisect import torch_environments as interpreters
options = interpreters.InstallOptions(find_links=(sys.argv[1],), no_index=True, cache=Path(sys.argv[2]), installer="pip")
print(interpreters.environment_of_version("1.0", options, lambda text: print(text, file=sys.stderr)).how)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torch 1.0 and 2.0 run, 3.0 does not, and there is something to install beside them."""
    place = tmp_path_factory.mktemp("wheels")
    for version, code in (("1.0", RUNS), ("2.0", RUNS), ("3.0", BROKEN), ("4.0", RUNS)):
        text = code.format(version="4.1" if version == "4.0" else version)
        wheel(place, "torch", version, {"torch/__init__.py": text})
    wheel(place, "beside", "7.0", {"beside/__init__.py": ""})
    return place


@pytest.fixture(autouse=True)
def plain_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's pip is told of indexes and constraints is not the test's business."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A user whose environment would lead every build astray."""
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


def test_built_once_then_kept_and_nothing_of_the_user_gets_in(
    wheels: Path, tmp_path: Path, hostile: Path
) -> None:
    """The second time nothing is installed; PYTHONPATH and pip's settings neither reach the
    environment nor are changed.
    """
    before, said = dict(os.environ), []
    first = torch_environments.environment_of_version(
        "1.0", options(wheels, tmp_path / "cache", "beside"), said.append
    )
    again = torch_environments.environment_of_version(
        "1.0", options(wheels, tmp_path / "cache", "beside"), said.append
    )
    assert (first.torch, first.how, again.how, again.python) == (
        "1.0",
        "built",
        "cached",
        first.python,
    )
    assert said == ["torch 1.0: building an environment with pip"]
    code = "import torch, beside; print(torch.__file__)"
    with torch_environments.without_user_environment():
        told = subprocess.run(
            [first.python, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        assert torch_environments.torch_of(first.python) == "1.0"
    assert Path(told.strip()).is_relative_to(tmp_path / "cache")
    assert dict(os.environ) == before and [p.name for p in hostile.iterdir()] == ["torch"]
    # another index, other packages or another base are another environment
    folders = {
        torch_environments.folder_of(torch_environments.version_of(version), sys.executable, chosen)
        for version in ("1.0", "2.0")
        for chosen in (
            options(wheels, tmp_path),
            options(wheels, tmp_path, "beside"),
            InstallOptions(cache=tmp_path),
        )
    }
    assert len(folders) == 6


def test_what_cannot_be_had_is_told_in_one_line(wheels: Path, tmp_path: Path) -> None:
    """No such version, one that does not import, one that is another: the telling line, and nothing
    is kept.
    """
    says = {
        "9.0": "No matching distribution found for torch==9.0",
        "3.0": "libfancy.so.9: cannot open shared object file",
        "4.0": "what is imported is 4.1",
    }
    for version, line in says.items():
        with pytest.raises(CannotInstall, match=line) as caught:
            torch_environments.environment_of_version(
                version, options(wheels, tmp_path), lambda text: None
            )
        assert "\n" not in str(caught.value)
    assert [p for p in (tmp_path / "environments").iterdir() if p.is_dir()] == []
    with pytest.raises(CannotInstall, match="at its deadline"):
        late = InstallOptions(
            find_links=(str(wheels),),
            no_index=True,
            cache=tmp_path,
            installer="pip",
            timeout_s=0.01,
        )
        torch_environments.environment_of_version("1.0", late, lambda text: None)
    for wrong in ("two", "-r requirements.txt"):
        with pytest.raises(BadInput, match="is no version"):
            torch_environments.environment_of_version(
                wrong, options(wheels, tmp_path), lambda text: None
            )
    with pytest.raises(BadInput, match="name a package"):
        torch_environments.environment_of_version(
            "1.0", options(wheels, tmp_path, "-rx"), lambda text: None
        )


def test_a_killed_builder_leaves_nothing_that_is_believed(wheels: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle: its installer ends too, and the next two builders make one environment
    between them.
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
    (place,) = (p for p in (tmp_path / "environments").iterdir() if p.is_dir())
    assert not (place / torch_environments.READY).exists()
    assert wait_until(lambda: not _at_work(place))
    (place / "half").touch()
    pair = [build(), build()]
    told = [child.communicate() for child in pair]
    assert sorted(out.strip() for out, _ in told) == ["built", "cached"], told
    assert sum("waiting for it" in err for _, err in told) <= 1
    assert (
        json.loads((place / torch_environments.READY).read_text()) == {"torch": "1.0"}
        and not (place / "half").exists()
    )


def _at_work(place: Path) -> bool:
    mine = str(place)
    found = []
    for process in psutil.process_iter():
        try:
            found.append(any(mine in word for word in process.cmdline()))
        except psutil.Error:
            continue
    return any(found)


def test_an_environment_whose_base_is_gone_is_built_again(wheels: Path, tmp_path: Path) -> None:
    """The marker alone is not believed."""
    place = torch_environments.folder_of(
        torch_environments.version_of("2.0"), sys.executable, options(wheels, tmp_path)
    )
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").symlink_to("/no/such/python")
    (place / torch_environments.READY).write_text('{"torch": "2.0"}')
    assert (
        torch_environments.environment_of_version(
            "2.0", options(wheels, tmp_path), lambda text: None
        ).how
        == "built"
    )


def test_the_index_says_which_releases_there_are(
    wheels: Path, tmp_path: Path, hostile: Path
) -> None:
    """Oldest first; where it cannot be asked, one line that names the way out."""
    assert [str(v) for v in releases.known_releases(options(wheels, tmp_path))] == [
        "1.0",
        "2.0",
        "3.0",
        "4.0",
    ]
    with pytest.raises(BadInput, match="name them with --versions"):
        releases.known_releases(options(tmp_path / "nothing", tmp_path))


def test_an_interpreter_is_asked_and_not_believed(tmp_path: Path) -> None:
    """No torch, none that can be read, and no answer at all."""
    says = {
        "import sys; sys.exit('no space left')": "no space left",
        "print('none')": "does not say which torch",
    }
    for code, line in says.items():
        script = tmp_path / "python"
        script.write_text(f"#!{sys.executable}\n{code}\n")
        script.chmod(0o755)
        with pytest.raises(CannotInstall, match=line):
            torch_environments.torch_of(str(script))
    with pytest.raises(CannotInstall, match="No such file"):
        torch_environments.torch_of(str(tmp_path / "absent"))


def test_the_telling_line() -> None:
    """Of pip and of uv."""
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
    assert telling_lines(pip) == "No matching distribution found for torch==9"
    assert telling_lines(conflict) == "Cannot install torch==9 because of conflicts."
    assert telling_lines(uv).startswith("Because there is no version") and telling_lines(
        older
    ).startswith("Because there")
    assert telling_lines("") == "" and telling_lines("Killed\n") == "Killed"
