"""Write the packs below a folder as Markdown, for ``$GITHUB_STEP_SUMMARY``.

    python -m reprokit.integrations.job_summary FOLDER

The folder has the run directories of ``reprokit capture``, or of pytest with ``--reprokit``. Every
text comes from the failure, so it is written as code and without line breaks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_ROWS = 50
MAX_CHARS = 500


@dataclass(frozen=True)
class SummaryRow:
    """One captured failure."""

    where: str
    """The test, or the folder of the run."""
    sentence: str
    """The verdict in one line."""
    signature: str
    pack: str


def summary_of_folder(folder: Path) -> str:
    """Return the Markdown of all captures below ``folder``; empty if nothing failed."""
    rows = [row for row in _rows_of_folder(folder) if row.sentence]
    if not rows:
        return ""
    lines = [f"### reprokit: {len(rows)} captured", ""]
    lines += ["| where | verdict | signature | pack |", "| --- | --- | --- | --- |"]
    for row in rows[:MAX_ROWS]:
        cells = (row.where, row.sentence, row.signature, row.pack)
        lines.append("| " + " | ".join(_as_code(cell) for cell in cells) + " |")
    if len(rows) > MAX_ROWS:
        lines.append(f"\nMore in the artifact: {len(rows) - MAX_ROWS}.")
    lines += ["", "`reprokit show PACK` prints a pack, `reprokit replay PACK` runs it again."]
    return "\n".join(lines) + "\n"


def _rows_of_folder(folder: Path) -> Iterator[SummaryRow]:
    in_pytest = set()
    for path in sorted(folder.rglob("captures.json")):
        for row in _list(_read_json(path).get("captures")):
            in_pytest.add(path.parent)
            yield SummaryRow(
                f"{row.get('nodeid')} {row.get('outcome')}",
                str(row.get("sentence")),
                str(row.get("signature")),
                Path(str(row.get("pack"))).name,
            )
    for path in sorted(folder.glob("**/run-*/verdict.json")):
        if in_pytest & set(path.parents):
            continue
        verdict, signature = _read_json(path), _read_json(path.with_name("signature.json"))
        if verdict.get("kind") in (None, "ok"):
            continue
        known = signature.get("id") or ""
        packs = sorted(path.parent.parent.glob(f"reprokit-*{known}.tar.gz"))
        yield SummaryRow(
            path.parent.name,
            f"{verdict.get('kind')}: {verdict.get('reason')}",
            str(known),
            packs[-1].name if packs else "",
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _as_code(text: str) -> str:
    """Return a text as inline code of a table cell; an empty text stays empty."""
    plain = " ".join(text.split())[:MAX_CHARS].replace("`", "'").replace("|", "\\|")
    return f"`{plain}`" if plain else ""


def main() -> None:
    """Print the summary of the folder of the command line."""
    sys.stdout.write(summary_of_folder(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
