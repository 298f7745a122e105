"""``reprokit issue``: show which text of a pack goes into which field of an issue form."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprokit.cli.shared import option_types, out
from reprokit.cli.shared import options as shared
from reprokit.core.shared.errors import BadInput

if TYPE_CHECKING:
    from reprokit.host.pack.issue_filing import FormFiling


@shared.command(
    epilog=(
        "Exit codes: 0 there is an issue to file, 1 neither torch nor Triton is responsible, 2"
        " wrong usage."
    )
)
@click.argument("pack", type=option_types.PackPath())
@shared.option(
    "--output-dir",
    type=click.Path(path_type=Path),
    help="Write the text of each field to a file in this folder, to paste it.",
)
@shared.JSON
@click.pass_context
def issue(ctx: click.Context, pack: Path, output_dir: Path | None, as_json: bool) -> None:
    """Show which text of PACK, or of the pack of a run directory, goes into which field on GitHub.

    Nothing is posted: you open the form, read it and send it.

    \b
    Examples:
      reprokit issue reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit issue PACK --output-dir texts
    """
    from reprokit.host.pack import issue_filing, reader, reopen

    pack = reader.locate_pack(pack)
    opened = reopen.open_pack(pack)
    if why := issue_filing.why_not_filed(opened):
        if as_json:
            out.RESULTS.print_json({"schema": 1, "pack": str(pack), "is_bug": False, "why": why})
        else:
            out.RESULTS.print_line(f"{pack} is not a bug to file: {why}")
        ctx.exit(1)
    filing = issue_filing.prepare_filing(opened)
    if not any(field.files for field in filing.fields):
        raise BadInput(
            f"{pack} has no text for an issue; capture it again, or copy from reprokit show {pack}"
        )
    written = _write_texts(filing, output_dir) if output_dir else {}
    if as_json:
        out.RESULTS.print_json(
            {
                "schema": 1,
                "pack": str(pack),
                "is_bug": True,
                "form": filing.form,
                "title": filing.title,
                "url": filing.url,
                "fields": [
                    {
                        "field": f.name,
                        "files": f.files,
                        "characters": len(f.text),
                        "path": written.get(f.name),
                    }
                    for f in filing.fields
                ],
                "attach": {"path": str(pack), "bytes": filing.size, "fits": filing.fits},
                "search": {"query": filing.query, "url": filing.search_url},
            }
        )
    else:
        _print_filing(filing, pack, written)


def _file_name(field: str) -> str:
    """Return the name of the file below --output-dir for the text of a field."""
    known = {"Describe the bug": "describe.md", "Environment details": "environment.md"}
    return known.get(field) or re.sub(r"\W+", "_", field.lower()) + ".md"


def _write_texts(filing: FormFiling, folder: Path) -> dict[str, str]:
    """Write each text to a file, and return the paths by field."""
    from reprokit.host.system import files

    written = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for field in filing.fields:
            if field.files:
                written[field.name] = str(
                    files.write_atomically(
                        folder / _file_name(field.name), out.clean_text(field.text)
                    )
                )
    except OSError as problem:
        raise BadInput(
            f"cannot write below {folder}: {problem.strerror or problem}; name a writable"
            " --output-dir"
        ) from problem
    return written


def _print_filing(filing: FormFiling, pack: Path, written: dict[str, str]) -> None:
    from reprokit.host.pack.issue_filing import MAX_FIELD_CHARS
    from reprokit.host.pack.writer import MAX_PACK_BYTES

    rows = [
        ("search first", filing.query),
        ("", filing.search_url),
        ("open", filing.url),
        ("title", filing.title),
    ]
    for field in filing.fields:
        texts = " and ".join(field.files) or "nothing: the pack has no text for it"
        rows.append((field.name, written.get(field.name) or texts))
    size = f"{filing.size / 1e6:.2f} MB; GitHub takes {MAX_PACK_BYTES / 1e6:.0f} MB"
    rows.append(
        ("attach", f"{pack} ({size}{'' if filing.fits else ', so put it elsewhere and link it'})")
    )
    for name, text in rows:
        out.RESULTS.print_line(f"{name:<20} {text}")
    if (count := sum(len(field.text) for field in filing.fields)) > MAX_FIELD_CHARS:
        out.RESULTS.print_line(
            f"The texts have {count} characters and GitHub takes {MAX_FIELD_CHARS}:"
            " cut the longest."
        )
    if not written:
        out.RESULTS.print_line(
            f"reprokit show {pack} --file NAME prints one of these texts, --output-dir writes them"
            " all."
        )
    out.RESULTS.print_line(
        "Replace the comment at the start of the description by your own sentence. Nothing was"
        " posted."
    )
