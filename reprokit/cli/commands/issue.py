"""``reprokit issue``: which text of a pack goes into which field of which form. It posts
nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprokit.cli.shared import out
from reprokit.core.shared.errors import BadInput

if TYPE_CHECKING:
    from reprokit.host.pack.issue_forms import FormFiling

FILES = {
    "Describe the bug": "describe.md",
    "Error logs": "error_logs.md",
    "Versions": "versions.md",
    "Environment details": "environment.md",
}
"""What the text of a field is called in --output-dir."""


@click.command(
    epilog=(
        "Exit codes: 0 there is an issue to file, 1 neither torch nor Triton is responsible, 2"
        " wrong usage."
    )
)
@click.argument("pack", type=click.Path(path_type=Path))
@click.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Write the text of each field there as a file, for pasting.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else."
)
@click.pass_context
def issue(ctx: click.Context, pack: Path, output_dir: Path | None, as_json: bool) -> None:
    """Say what goes where when PACK, or the pack of a run directory, becomes an issue on GitHub.

    Nothing is posted: the form is yours to open, to read once more and to send.

    \b
    Examples:
      reprokit issue reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit issue PACK --output-dir texts
    """
    from reprokit.host.pack import issue_forms, reader, reopen

    pack = reader.locate_pack(pack)
    opened = reopen.open_pack(pack)
    if why := issue_forms.why_not(opened):
        if as_json:
            out.RESULTS.json({"schema": 1, "pack": str(pack), "is_bug": False, "why": why})
        else:
            out.RESULTS.line(f"{pack} is not a bug to file: {why}")
        ctx.exit(1)
    found = issue_forms.filing_of(opened)
    if not any(field.files for field in found.fields):
        raise BadInput(
            f"{pack} holds no text of an issue; capture it again, or paste from reprokit show"
            f" {pack}"
        )
    written = _write(found, output_dir) if output_dir else {}
    if as_json:
        out.RESULTS.json(
            {
                "schema": 1,
                "pack": str(pack),
                "is_bug": True,
                "form": found.form,
                "url": found.url,
                "fields": [
                    {
                        "field": f.name,
                        "files": f.files,
                        "characters": len(f.text),
                        "path": written.get(f.name),
                    }
                    for f in found.fields
                ],
                "attach": {"path": str(pack), "bytes": found.size, "fits": found.fits},
                "search": {"query": found.query, "url": found.search_url},
            }
        )
    else:
        _tell(found, pack, written)


def _write(found: FormFiling, folder: Path) -> dict[str, str]:
    """Leave each text as a file; gives where, by field."""
    from reprokit.host.system import files

    written = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for field in found.fields:
            if field.files:
                written[field.name] = str(
                    files.write_whole(folder / FILES[field.name], out.clean_text(field.text))
                )
    except OSError as problem:
        raise BadInput(
            f"cannot write below {folder}: {problem.strerror or problem}; name a writable"
            " --output-dir"
        ) from problem
    return written


def _tell(found: FormFiling, pack: Path, written: dict[str, str]) -> None:
    from reprokit.host.pack.issue_forms import FIELD_CHARS
    from reprokit.host.pack.writer import MOST_BYTES

    rows = [("search first", found.query), ("", found.search_url), ("open", found.url)]
    for field in found.fields:
        texts = " and ".join(field.files) or "nothing: the pack has no text for it"
        rows.append((field.name, written.get(field.name) or texts))
    size = f"{found.size / 1e6:.2f} MB; GitHub takes {MOST_BYTES / 1e6:.0f} MB"
    rows.append(
        ("attach", f"{pack} ({size}{'' if found.fits else ', so put it elsewhere and link it'})")
    )
    for name, text in rows:
        out.RESULTS.line(f"{name:<20} {text}")
    if (count := sum(len(field.text) for field in found.fields)) > FIELD_CHARS:
        out.RESULTS.line(
            f"The texts have {count} characters and GitHub takes {FIELD_CHARS}: cut the longest."
        )
    if not written:
        out.RESULTS.line(
            f"reprokit show {pack} --file NAME prints one of these texts, --output-dir writes them"
            " all."
        )
    out.RESULTS.line(
        "Replace the comment at the head of the description by a sentence of your own. Nothing was"
        " posted."
    )
