"""Read what a flight recorder of ``torch.distributed`` dumped: the last collectives of one rank.

The recorder of NCCL and of gloo writes pickles (``TORCH_FR_DUMP_TEMP_FILE``) and JSON
(``_dump_fr_trace_json``, the page ``/fr_trace_json`` of ``torch.distributed.debug``). The fields
are those of ``torch/csrc/distributed/c10d/FlightRecorder.hpp``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reprokit.core.ranks.rank_records import RankRecord, RecordedCall
from reprokit.core.records import bounded_json
from reprokit.host.merge import safe_pickle
from reprokit.host.system import files

MAX_FILE_BYTES = 64 << 20
MAX_ENTRIES = 100_000
MAX_NUMBERS = 64
"""Numbers of the sizes of one call that are shown."""
MAX_MEMBERS, MAX_RANKS_CHARS = 2_000_000, 1_000_000
"""Ranks of all groups together, and characters of the text with the ranks of one."""
_RANK = re.compile(r"(\d{1,6})(?:\.(?:json|pickle|pkl))?$")
_WORD = re.compile(r"[\w.-]{1,80}")


def rank_of_name(name: str) -> int | None:
    """Return the rank at the end of a file's name; None if it has no number."""
    found = _RANK.search(name)
    return int(found[1]) if found else None


def read_flight_record(path: Path, rank: int) -> RankRecord:
    """Read the dump of one rank.

    Raises:
        ValueError: the file is not a dump of a flight recorder.
        OSError: the file cannot be read.
    """
    with files.open_regular_file(path) as file:
        data = files.read_at_most(file, MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"it has more than {MAX_FILE_BYTES >> 20} MB")
    if data[:1] == b"\x80":
        document = safe_pickle.read_plain_pickle(data)
    else:
        document = bounded_json.parse_json(data, MAX_FILE_BYTES)
    if not isinstance(document, dict) or not isinstance(document.get("entries"), (list, tuple)):
        raise ValueError("it has no entries of a flight recorder")
    calls = _calls(document["entries"])
    return RankRecord(rank, tuple(calls), _members(document.get("pg_config")))


def _calls(entries: Any) -> Iterator[RecordedCall]:
    for entry in list(entries)[-MAX_ENTRIES:]:
        if not isinstance(entry, dict) or entry.get("is_p2p") is True:
            continue
        number, created = entry.get("collective_seq_id"), entry.get("time_created_ns")
        name = entry.get("profiling_name")
        backend, _, operation = name.rpartition(":") if isinstance(name, str) else ("", "", "")
        if not isinstance(number, int) or number < 1 or not _WORD.fullmatch(operation):
            continue
        group = entry.get("process_group")
        name = group[0] if isinstance(group, (list, tuple)) and group else ""
        is_done = entry.get("state") == "completed" or (
            # gloo reports no times, and a call that is done is retired
            backend == "gloo" and entry.get("retired") is True
        )
        sizes = f"{_numbers(entry.get('input_sizes'))} -> {_numbers(entry.get('output_sizes'))}"
        yield RecordedCall(
            group=_word(name),
            number=number,
            operation=operation,
            sizes=sizes,
            dtypes=_words(entry.get("input_dtypes")),
            is_done=is_done,
            created_ns=created if isinstance(created, int) and 0 <= created < 1 << 63 else 0,
            place=_place(entry.get("frames")),
        )


def _members(config: Any) -> dict[str, tuple[int, ...]]:
    """Return the global ranks of each process group, which the recorder writes as a text."""
    found: dict[str, tuple[int, ...]] = {}
    left = MAX_MEMBERS
    for key, row in list(config.items())[:10_000] if isinstance(config, dict) else ():
        text = row.get("ranks") if isinstance(row, Mapping) else None
        if isinstance(text, str) and len(text) < MAX_RANKS_CHARS and left > 0:
            ranks = sorted({int(number) for number in re.findall(r"\d{1,6}", text)})[:left]
            left -= len(ranks)
            found[_word(row.get("name")) or _word(key)] = tuple(ranks)
    # gloo reports the members of the default group without its name
    if ranks_of_default := found.pop("", ()):
        found.setdefault("0", ranks_of_default)
    return {name: ranks for name, ranks in found.items() if ranks}


def _place(frames: Any) -> str:
    """Return the innermost frame outside of torch."""
    for frame in frames[:200] if isinstance(frames, (list, tuple)) else ():
        if not isinstance(frame, dict):
            continue
        file, line, function = (frame.get(key) for key in ("filename", "line", "name"))
        if isinstance(file, str) and "/torch/" not in file and isinstance(line, int):
            name = file.rsplit("/", 1)[-1][:100]
            inside = f" in {_shown(function[:100])}" if isinstance(function, str) else ""
            return f"{_shown(name)}:{line}{inside}"
    return ""


def _numbers(value: Any) -> str:
    """Return nested lists of sizes as text, without expanding a list that contains itself often."""
    rows = []
    left = MAX_NUMBERS
    for row in value[:MAX_NUMBERS] if isinstance(value, (list, tuple)) else ():
        sizes = row[:left] if isinstance(row, (list, tuple)) else ()
        numbers = [str(n) for n in sizes if isinstance(n, int) and abs(n) < 1 << 63]
        left -= len(numbers)
        rows.append(f"[{', '.join(numbers)}]")
    return f"[{', '.join(rows)}]"


def _words(value: Any) -> str:
    rows = value[:MAX_NUMBERS] if isinstance(value, (list, tuple)) else ()
    return ", ".join(dict.fromkeys(word for row in rows if (word := _word(row))))


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    return text if _WORD.fullmatch(text) else ""


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)
