"""Captures whose run directories are recorded below ``tests/recorded``.

A test that reads the answer of a capture uses the fixture ``recorded``. It restores the run
directory that the target left, and ``reprokit pack`` judges, signs and packs it, so only the target
itself does not run. ``--captures`` says what the fixture does instead:

- ``recorded``: as above; the default.
- ``fresh``: it starts each capture, compares its answer with that of the recording, and gives it to
  the test. ``nox -s long`` does this, so that a recording stays true.
- ``record``: it starts each capture and replaces the recording. ``nox -s record`` does this.

A recording belongs to one command, its variables and its files. A test that changes one of them
fails until its captures are recorded again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import socket
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from reprokit.host.environment.agent_queries import QUERY_TIMEOUT_S, query_agent
from reprokit.host.system import files
from tests.support import warm_processes
from tests.support.environments import RECORDED, ROOT, clean_environ
from tests.support.judge_again import assert_judged_alike
from tests.support.reprokit_calls import CALL_TIMEOUT_S, CallResult, check_answer, reprokit

Variables = dict[str, str | None]
MODES = ("recorded", "fresh", "record")
MAX_NAME_CHARS = 80
META = "recording.json"
FOLDER, REPOSITORY = "/recorded/folder", "/recorded/repository"
"""What a recording has instead of the folder of the test and of the repository."""
NOT_RECORDED = re.compile(
    r"(pack|results|agent|warm|cache)(/|$)|(verdict|signature|observation)\.json$"
    r"|reprokit\.log$|steps\.jsonl$|.*\.beat$"
)
"""What ``reprokit pack`` writes anew, or what exists only during a run."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--captures",
        choices=MODES,
        default="recorded",
        help="use recorded captures, or start them and compare them, or record them again",
    )


@dataclasses.dataclass
class Recorder:
    """Give a test the answers of recorded captures."""

    mode: str
    folder: Path
    """The temporary folder of the test, which has the files of the target."""
    name: str
    """The path of the recordings below ``tests/recorded``, without a suffix."""
    count: int = 0
    outs: set[Path] = dataclasses.field(default_factory=set)
    """The output folders so far, on which no later capture depends."""

    def __call__(
        self, *words: str | Path, name: str = "", out: str = "out", **variables: str | None
    ) -> CallResult:
        """Return the answer of ``reprokit capture --json WORDS --output-dir OUT``.

        ``name`` is the name of a recording that several tests use. A variable that is None is
        removed.
        """
        self.count += 1
        place = Path(self.name).with_name(name) if name else Path(f"{self.name}-{self.count}")
        recording = Recording(RECORDED / f"{place}.tar.xz", self.folder, out)
        row = ["--output-dir", str(self.folder / out), *map(str, words)]
        digest = _digest(self.folder, self.outs, row, variables)
        self.outs.add(self.folder / out)
        if self.mode == "recorded":
            return recording.restore(digest, variables)
        if self.mode == "record":
            done = _capture(row, variables)
            recording.save(done, digest, row, variables)
            _record_inventory()
            shutil.rmtree(self.folder / out)
            return recording.restore(digest, variables)
        expected = recording.restore(digest, variables)
        evidence = _evidence(expected)
        shutil.rmtree(self.folder / out)
        done = _capture(row, variables)
        _assert_alike((expected, evidence), (done, _evidence(done)))
        return done


@dataclasses.dataclass(frozen=True)
class Recording:
    """One recorded output folder, as a tar file."""

    path: Path
    folder: Path
    out: str

    def restore(self, digest: str, variables: Variables) -> CallResult:
        """Unpack the run directory, and judge and pack it."""
        again = f"nox -s record -- {self.path.relative_to(RECORDED)}"
        if not self.path.is_file():
            pytest.fail(f"there is no recording {self.path}: {again}")
        if self.unpack()["digest"] != digest:
            pytest.fail(f"{self.path} is of a different command or program: {again}")
        (run_dir,) = (self.folder / self.out).glob("run-*")
        return pack_recording(run_dir, "--json", **variables)

    def unpack(self) -> dict[str, Any]:
        """Unpack the run directory, and return what is known about the recording."""
        with tarfile.open(self.path) as archive:
            files = {
                member.name: _bytes_of(archive, member)
                for member in archive.getmembers()
                if member.isfile()
            }
        meta: dict[str, Any] = json.loads(files.pop(META))
        for name, data in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            for text, place in ((FOLDER, self.folder), (REPOSITORY, ROOT)):
                data = data.replace(text.encode(), str(place).encode())
            path.write_bytes(data)
        return meta

    def save(self, done: CallResult, digest: str, words: list[str], variables: Variables) -> None:
        """Write the recording of a capture."""
        versions = done.json["versions"]
        meta = {
            "command": f"reprokit capture --json {shlex.join(words)}",
            "variables": variables,
            "torch": versions.get("torch"),
            "python": sys.version.split()[0],
            "digest": digest,
        }
        rows = {META: json.dumps(meta, indent=1).encode()}
        for path in sorted((self.folder / self.out).glob("run-*/**/*")):
            name = path.relative_to(self.folder).as_posix()
            inside = name.split("/", 2)[2]
            if path.is_file() and not path.is_symlink() and not NOT_RECORDED.match(inside):
                rows[name] = _unpacked(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replaced = _replacements(self.folder)
        draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")  # of another worker
        with tarfile.open(draft, "w:xz", preset=9) as archive:
            for name, data in rows.items():
                for place, text in replaced:
                    data = data.replace(place.encode(), text.encode())
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        draft.replace(self.path)


def print_recording(path: Path, folder: Path) -> str:
    """Unpack a recording in ``folder``, and return what ``reprokit pack RUN_DIR`` prints."""
    meta = Recording(path, folder, "").unpack()
    (run_dir,) = folder.glob("*/run-*")
    return pack_recording(run_dir, **meta["variables"]).out


def pack_recording(
    run_dir: Path, *words: str, cwd: Path | None = None, **variables: str | None
) -> CallResult:
    """Call ``reprokit pack RUN_DIR`` with the recorded answers about the environment."""
    row = ["pack", *words, str(run_dir)]
    environ = _environ(variables)
    done = warm_processes.run_command_line(
        row, cwd, environ, CALL_TIMEOUT_S, "tests.support.pack_recording"
    )
    return check_answer(row, done)


@pytest.fixture
def recorded(
    request: pytest.FixtureRequest, tmp_path: Path, pytestconfig: pytest.Config
) -> Iterator[Recorder]:
    """A function that gives the answer of a recorded capture."""
    folder = request.path.relative_to(ROOT / "tests").with_suffix("")
    name = re.sub(r"[^\w-]+", "-", request.node.name.removeprefix("test_")).strip("-")
    if len(name) > MAX_NAME_CHARS:  # the parameters of a test can be whole programs
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        name = f"{name[:MAX_NAME_CHARS]}-{digest}"
    yield Recorder(pytestconfig.getoption("--captures"), tmp_path, f"{folder}/{name}")


def _capture(words: list[str], variables: Variables) -> CallResult:
    done = reprokit("capture", "--json", *words, env=_environ(variables))
    assert_judged_alike(done)
    return done


def _environ(variables: Variables) -> dict[str, str]:
    environ = clean_environ(**{k: v for k, v in variables.items() if v is not None})
    return {k: v for k, v in environ.items() if variables.get(k, v) is not None}


def _record_inventory() -> None:
    """Write what the interpreter says about its environment, if another torch has written it."""
    path = RECORDED / "inventory.json"
    if path.is_file() and f'"torch": "{metadata.version("torch")}"' in path.read_text():
        return
    text = json.dumps(query_agent(sys.executable, ["env"], QUERY_TIMEOUT_S), indent=1)
    for place, instead in _replacements(ROOT):
        text = text.replace(place, instead)
    path.write_text(text.replace(socket.gethostname(), "host"))


def _digest(folder: Path, outs: set[Path], words: list[str], variables: Variables) -> str:
    """Return a digest of what a capture depends on, wherever the folders are."""
    files = {
        str(path): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not outs & {*path.parents} and path.parent.name != "__pycache__"
    }
    named = [word.split(":")[0] for word in words]
    files |= {name: Path(name) for name in named if "/" in name and Path(name).is_file()}
    files.pop(sys.executable, None)
    texts = {
        name: hashlib.sha256(_plain(path.read_bytes(), folder)).hexdigest()
        for name, path in files.items()
    }
    text = json.dumps([words, variables, texts])
    return hashlib.sha256(_plain(text.encode(), folder)).hexdigest()


NOT_RESTORED = {
    sys.prefix: "/recorded/environment",
    sys.base_prefix: "/recorded/python",
    str(Path.home()): "/recorded/home",
}
"""Folders of this machine whose names in a recording stay where it is restored."""


def _plain(data: bytes, folder: Path) -> bytes:
    for place, text in _replacements(folder):
        for form in {place, json.dumps(place)[1:-1]}:
            data = data.replace(form.encode(), text.encode())
    return data.replace(b'"', b"'").replace(b"\\'", b"'")  # repr() of a path with a quote


def _replacements(folder: Path) -> list[tuple[str, str]]:
    """Return the folders of this machine, the innermost first, and what a recording has instead."""
    return _innermost_first({str(folder): FOLDER, str(ROOT): REPOSITORY, **NOT_RESTORED})


def _innermost_first(rows: dict[str, str]) -> list[tuple[str, str]]:
    return sorted(rows.items(), key=lambda row: len(row[0]), reverse=True)


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a file without the gzip of a trace, which would hide the names of
    folders. Readers of a trace do not need it.
    """
    with files.open_unpacked_file(path) as file:
        return file.read()


def _bytes_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None
    return file.read()


OF_TIME = ("last_progress", "quiet_s")
"""What an observation has only if the watchdog looked between the last progress and the end."""
CACHE_KEY = r"\b[a-z2-7]{51,52}\b"


def _evidence(done: CallResult) -> dict[str, Any]:
    """Return what a run left, as far as it does not depend on the time and on process numbers."""
    events = {
        json.loads(line).get("ev")
        for path in (done.run_dir / "journal").glob("*.jsonl")
        for line in path.read_text().splitlines()
        if line.startswith("{")
    }
    seen = json.loads((done.run_dir / "observation.json").read_text())
    return {
        "events": sorted(map(str, events)),
        "observed": sorted(key for key, value in seen.items() if value and key not in OF_TIME),
        "graphs": sorted(path.name for path in (done.run_dir / "graphs").glob("*/*")),
    }


def _assert_alike(
    expected: tuple[CallResult, dict[str, Any]], got: tuple[CallResult, dict[str, Any]]
) -> None:
    """Check that a capture gives the status, verdict, signature and evidence of its recording."""
    before, after = (
        {
            "status": done.status,
            "signature": done.json["signature"],
            "verdict": _numberless(done.json["verdict"]),
            **evidence,
        }
        for done, evidence in (expected, got)
    )
    assert after == before, "the recording is not true any more: nox -s record"


def _numberless(value: Any) -> Any:
    """Return a value without its numbers, the names of temporary files and the keys of caches,
    and with the folders that a recording has.
    """
    text = json.dumps(value, ensure_ascii=False)
    for place, name in _innermost_first(NOT_RESTORED):
        text = text.replace(place, name)
    temporary = rf"(?:{re.escape(tempfile.gettempdir())}|/tmp)/[\w-]+"
    return json.loads(re.sub(rf"{temporary}|{CACHE_KEY}|\d+(\.\d+)?", "#", text))
