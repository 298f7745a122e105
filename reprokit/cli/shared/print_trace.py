"""Print what the trace of a pack says about each compile: graphs, guards, recompiles, breaks,
and code.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reprokit.cli.shared import out
from reprokit.core.reported import trace_records
from reprokit.core.reported.trace_records import RunRecord
from reprokit.core.shared.errors import BadInput

if TYPE_CHECKING:
    from reprokit.host.pack.reader import PackFiles

PARTS = ("graphs", "guards", "recompiles", "breaks", "kernels")
FOLDER = "trace/"
MAX_TRACE_BYTES = 512 << 20


def read_traces(contents: PackFiles) -> dict[str, RunRecord]:
    """Return what each trace of a pack says, by its name; raises BadInput if there is none."""
    names = sorted(name for name in contents.files if name.startswith(FOLDER))
    if not names:
        raise BadInput(
            f"{contents.path} has no trace: torch recorded no compile, the capture had --no-trace,"
            " the program wrote TORCH_TRACE elsewhere, or the trace did not fit"
        )
    return {name.removeprefix(FOLDER): _read(name, contents.files[name]) for name in names}


def _read(name: str, data: bytes) -> RunRecord:
    raw = gzip.GzipFile(fileobj=io.BytesIO(data)) if name.endswith(".gz") else io.BytesIO(data)
    try:
        text = raw.read(MAX_TRACE_BYTES).decode("utf-8", "replace")
    except (OSError, EOFError) as problem:
        raise BadInput(f"{name} of the pack is damaged: {problem}") from problem
    return trace_records.read_trace(io.StringIO(text, newline="\n"))


def print_parts(runs: dict[str, RunRecord], parts: Sequence[str]) -> None:
    """Print the chosen parts of each compile."""
    count = 0
    for name, run in runs.items():
        for row in run.compiles.values():
            texts = [(part, text) for part in parts for text in row.texts(part)]
            if not texts:
                continue
            count += 1
            where = " ".join(filter(None, (row.function, row.place)))
            of = f" of {name}" if len(runs) > 1 else ""
            out.RESULTS.print_line((out.one_line(f"compile {row.cid} {where}{of}"), "bold"))
            for part, text in texts:
                label = part.removesuffix("s") if len(parts) > 1 else ""
                out.RESULTS.print_text(f"{label}:\n" * bool(label) + text.rstrip("\n") + "\n")
    if not count:
        kinds = " or ".join(parts)
        out.RESULTS.print_line(f"the trace has no {kinds}")


def to_json(runs: dict[str, RunRecord], parts: Sequence[str]) -> list[dict[str, Any]]:
    """Return one object for each compile."""
    return [
        {
            "trace": name,
            "id": row.cid,
            "function": row.function,
            "place": row.place,
            "error": row.error,
            "seconds": row.seconds,
            "parts": {part: row.texts(part) for part in parts},
        }
        for name, run in runs.items()
        for row in run.compiles.values()
    ]
