"""``reprokit show``: verify a pack and print its contents; nothing is run or written to disk."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from reprokit.cli.shared import known_matches, option_types, out
from reprokit.cli.shared import options as shared
from reprokit.core.shared.contract import run_names

MAX_RECORD_CHARS = 1 << 20
MAX_SHOWN_BYTES = 9 << 20
"""Limit of one printed file. No text in a pack of reprokit is longer."""
_SHOWN = (run_names.VERDICT_FILE, run_names.SIGNATURE_FILE, run_names.REPORT_DATA_FILE)


@shared.command()
@click.argument("pack", type=option_types.PackPath())
@shared.option("--file", "name", help="Print one file of the pack instead.")
@known_matches.CATALOGUES
@shared.JSON
def show(pack: Path, name: str | None, catalogues: tuple[Path, ...], as_json: bool) -> None:
    """Verify PACK, or the pack of a run directory, against its manifest and print its contents.

    A pack may come from a stranger: unsafe names, links, devices and decompression bombs are
    refused, and nothing is extracted or run.

    \b
    Examples:
      reprokit show reprokit-llama40b-exception-1f2e3d4c5b6a.tar.gz
      reprokit show PACK --file issue.md
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.pack import reader

    pack = reader.locate_pack(pack)
    contents = reader.read_pack(pack, lambda file: file in (*_SHOWN, name))
    verdict, signature = (
        contents.read_json(file, MAX_RECORD_CHARS)
        for file in (run_names.VERDICT_FILE, run_names.SIGNATURE_FILE)
    )
    if name is not None:
        if name not in contents.files:
            command = shlex.join(["reprokit", "show", str(pack)])
            raise BadInput(f"{pack} has no file {name!r}; {command} lists its files")
        if contents.sizes[name] > MAX_SHOWN_BYTES:
            raise BadInput(
                f"{name} has {contents.sizes[name]} bytes, and show prints at most"
                f" {MAX_SHOWN_BYTES}; extract it with tar"
            )
        text = contents.files[name].decode("utf-8", "replace")
        if as_json:
            out.RESULTS.print_json({"schema": 1, "pack": str(pack), "file": name, "text": text})
        else:
            out.RESULTS.print_text(text)
        return
    report, trimmed = contents.read_json(run_names.REPORT_DATA_FILE), contents.manifest["trimmed"]
    rows = dict(sorted(contents.sizes.items()))
    matches = known_matches.find_known_of_record(signature, catalogues)
    if as_json:
        out.RESULTS.print_json(
            {
                "schema": 1,
                "pack": str(pack),
                "verified": True,
                "verdict": verdict,
                "signature": signature,
                "report": report,
                "trimmed": trimmed,
                "files": rows,
                "known": [match.to_json() for match in matches],
            }
        )
        return
    from reprokit.cli.shared import print_capture

    out.RESULTS.print_line((out.one_line(str(signature.get("title", "no signature"))), "bold"))
    for match in matches:
        out.RESULTS.print_line(out.one_line(match.sentence))
    if report:
        print_capture.print_report(report)
    else:
        out.RESULTS.print_line(out.one_line(str(verdict.get("reason", "no verdict"))))
    about = (
        f"signature {signature.get('id')!s:.100}, {len(rows)} files, all match the manifest of"
        f" {contents.manifest.get('made_by')!s:.100}"
    )
    out.RESULTS.print_line(out.one_line(about))
    listed = [f"{size:>10}  {file}" for file, size in rows.items()]
    out.RESULTS.print_text(
        "".join(f"{out.one_line(row) if len(row) > 200 else row}\n" for row in listed)
    )
    for row in trimmed:
        out.RESULTS.print_line(out.one_line(f"trimmed {row}"))
