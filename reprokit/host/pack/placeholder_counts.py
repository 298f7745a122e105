"""Count the placeholders in the files of a pack."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from reprokit.core.shared.contract import run_names
from reprokit.host.pack import tar_format
from reprokit.host.system import host_log

PLACEHOLDER_KINDS = {
    "token": "secret",
    "credentials": "secret of a URL",
    "key": "private key",
    "email": "e-mail address",
    "ip": "IP address",
    "mac": "MAC address",
    "user": "user name",
    "host": "host name",
    "home": "home folder",
    "cut": "unknown edge of a cut",
}
"""The kinds of placeholders, and what each replaces."""
PROGRAMS = (run_names.REPRO_FILE, run_names.CANDIDATE_FILE, run_names.ORIGINAL_FILE)
MAX_UNPACKED_BYTES = 192 << 20
_NUMBERED = "|".join(kind for kind in PLACEHOLDER_KINDS if kind != "home")
_MARK = re.compile(rf"(?:<|&lt;)(?:(?P<kind>{_NUMBERED})-(?P<number>\d+)|home)(?:>|&gt;)".encode())


def count_placeholders(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the number of placeholders in all, by kind and by file, and the number of different
    placeholders of each kind.
    """
    by_file: dict[str, int] = {}
    different: dict[str, set[bytes]] = {}
    places: Counter[str] = Counter()
    for name, data in files.items():
        marks = [*_MARK.finditer(_text(name, data))]
        if marks:
            by_file[name] = len(marks)
        for mark in marks:
            kind = (mark["kind"] or b"home").decode()
            places[kind] += 1
            different.setdefault(kind, set()).add(mark["number"] or b"")
    kinds = {
        kind: {"different": len(different[kind]), "places": places[kind]}
        for kind in PLACEHOLDER_KINDS
        if kind in places
    }
    return {"places": sum(places.values()), "kinds": kinds, "files": dict(sorted(by_file.items()))}


def counts_sentence(counted: Mapping[str, Any]) -> str:
    """Return the counts as one line, which names the program if placeholders changed it."""
    if not counted.get("places"):
        return "nothing was hidden"
    kinds = ", ".join(
        _many(row["different"], PLACEHOLDER_KINDS[kind]) for kind, row in counted["kinds"].items()
    )
    changed = [
        f"{counted['files'][name]} in {name}" for name in PROGRAMS if name in counted["files"]
    ]
    number = counted["places"]
    times = "once" if number == 1 else f"{number:,} times"
    return f"{kinds}, replaced {times} in {_many(len(counted['files']), 'file')}" + _among(changed)


def _among(changed: Iterable[str]) -> str:
    listed = ", ".join(changed)
    return f"; {listed}" if listed else ""


def _many(number: int, words: str) -> str:
    noun, _, rest = words.partition(" of ")
    plural = noun if number == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number} {plural}{' of ' + rest if rest else ''}"


def _text(name: str, data: bytes) -> bytes:
    if not name.endswith(".gz"):
        return data
    try:
        return tar_format.inflate_gzip(data, MAX_UNPACKED_BYTES)
    except ValueError as problem:  # a damaged file of a stranger's pack that is written again
        host_log.log_ignored(problem)
        return b""
