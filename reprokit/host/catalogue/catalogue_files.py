"""Read and write the entries of a catalogue: a folder of TOML files, one for each failure."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import reprokit
from reprokit.core.shared.contract.serialize import to_json
from reprokit.core.shared.errors import BadInput
from reprokit.core.triage.known_failures import KnownFailure, read_known_failure
from reprokit.host.system import files

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OWN_FOLDER = Path(reprokit.__file__).with_name("catalogue")
MAX_ENTRY_BYTES = 200_000
_PLAIN = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f]*")


def read_catalogue(folder: Path) -> list[KnownFailure]:
    """Return the entries of a folder; raises BadInput for a damaged one, or for no folder."""
    origin = "" if folder == OWN_FOLDER else str(folder)
    if not folder.is_dir():
        raise BadInput(f"{folder} is no catalogue: it is not a folder of TOML files")
    return [read_entry(path, origin) for path in sorted(folder.glob("*.toml"))]


@cache
def own_catalogue() -> tuple[KnownFailure, ...]:
    """Return the entries that come with reprokit."""
    return tuple(read_catalogue(OWN_FOLDER)) if OWN_FOLDER.is_dir() else ()


def all_entries(folders: Iterable[Path]) -> list[KnownFailure]:
    """Return the entries of folders and of reprokit; of several for one issue, the first one."""
    entries = [entry for folder in folders for entry in read_catalogue(folder)]
    first: dict[str, KnownFailure] = {}
    for entry in (*entries, *own_catalogue()):
        first.setdefault(entry.issue, entry)
    return [*first.values()]


def read_entry(path: Path, origin: str = "") -> KnownFailure:
    """Read one entry; raises BadInput if it is damaged."""
    try:
        if path.stat().st_size > MAX_ENTRY_BYTES:
            raise BadInput(f"{path} is larger than {MAX_ENTRY_BYTES} bytes, so it is no entry")
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return read_known_failure(document, origin)
    except OSError as problem:
        raise BadInput(f"cannot read {path}: {problem.strerror or problem}") from problem
    except ValueError as problem:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise BadInput(f"{path} is not an entry of a catalogue: {problem}") from problem


def write_entry(entry: KnownFailure, path: Path) -> None:
    """Write an entry as TOML; raises OSError."""
    files.write_atomically(path, entry_text(entry))


def write_catalogue(entries: Iterable[KnownFailure], folder: Path) -> list[str]:
    """Write entries to a folder, which is created, and return their issues.

    Raises BadInput if that is not possible.
    """
    issues = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in entries:
            write_entry(entry, folder / file_name(entry))
            issues.append(entry.issue)
    except OSError as problem:
        raise BadInput(f"cannot write {folder}: {problem.strerror or problem}") from problem
    return issues


def file_name(entry: KnownFailure) -> str:
    """Return the name of the file of an entry: ``REPOSITORY-NUMBER.toml``."""
    repository, _, number = entry.issue.partition("#")
    return f"{repository.rpartition('/')[2]}-{number}.toml"


def entry_text(entry: KnownFailure) -> str:
    """Return an entry as TOML."""
    document = to_json(dataclasses.replace(entry, origin=""))
    runs: Sequence[dict[str, Any]] = document.pop("runs")
    programs = {key: document.pop(key) for key in ("program", "workaround_program")}
    rows = [f"{key} = {_value(value)}" for key, value in document.items() if value]
    rows += [f"{key} = {_text_block(text)}" for key, text in programs.items() if text]
    for run in runs:
        rows += ["", "[[runs]]"]
        rows += [f"{key} = {_value(value)}" for key, value in run.items() if value]
    return "\n".join(rows) + "\n"


def _value(value: object) -> str:
    """Return a string, a number or a list of strings as TOML, which takes the strings of JSON."""
    if isinstance(value, (list, tuple)) and value:
        return "[\n" + "".join(f"    {_value(one)},\n" for one in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _text_block(text: str) -> str:
    """Return a text of several lines as TOML."""
    if "'''" in text or not _PLAIN.fullmatch(text):
        return _value(text)
    return f"'''\n{text}'''"
