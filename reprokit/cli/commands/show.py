"""``reprokit show``: verify a pack and print its contents; nothing is run or written to disk."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reprokit.cli.shared import known_matches, option_types, out, print_trace
from reprokit.cli.shared import options as shared
from reprokit.core.judge.stacks.location import plural
from reprokit.core.shared.contract import run_names

if TYPE_CHECKING:
    from reprokit.core.triage.known_failures import KnownMatch
    from reprokit.host.pack.reader import PackFiles

MAX_RECORD_CHARS = 1 << 20
MAX_SHOWN_BYTES = 9 << 20
"""Limit of one printed file. No text in a pack of reprokit is longer."""
_SHOWN = (run_names.VERDICT_FILE, run_names.SIGNATURE_FILE, run_names.REPORT_DATA_FILE)


@shared.command()
@click.argument("pack", type=option_types.PackPath())
@shared.option(
    "--file",
    "name",
    section=shared.OUTPUT_SECTION,
    help="Print one file of the pack instead.",
)
@shared.option(
    "--page",
    "is_whole",
    section=shared.OUTPUT_SECTION,
    is_flag=True,
    help=(
        "Print all stacks, frames and files, on a terminal page by page; default: threads with the"
        " same stack, frames of reprokit and files of one folder are one line."
    ),
)
@shared.option(
    "--graphs",
    section=shared.EVIDENCE,
    is_flag=True,
    help="Print each graph with your lines, by its compile.",
)
@shared.option(
    "--guards",
    section=shared.EVIDENCE,
    is_flag=True,
    help="Print what must hold for each compiled graph.",
)
@shared.option(
    "--recompiles",
    section=shared.EVIDENCE,
    is_flag=True,
    help="Print why functions were compiled again.",
)
@shared.option(
    "--breaks",
    section=shared.EVIDENCE,
    is_flag=True,
    help="Print each graph break with its line and reason.",
)
@shared.option(
    "--kernels",
    section=shared.EVIDENCE,
    is_flag=True,
    help="Print the code that Inductor generated.",
)
@known_matches.CATALOGUES
@shared.JSON
def show(
    pack: Path,
    name: str | None,
    is_whole: bool,
    catalogues: tuple[Path, ...],
    as_json: bool,
    **chosen: bool,
) -> None:
    """Verify PACK, or the pack of a run directory, against its manifest and print its contents.

    A pack may come from a stranger: unsafe names, links, devices and decompression bombs are
    refused, and nothing is extracted or run.

    \b
    Examples:
      reprokit show reprokit-llama40b-exception-1f2e3d4c5b6a.tar.gz
      reprokit show PACK --file issue.md
      reprokit show PACK --graphs --breaks
    """
    from reprokit.core.shared.errors import BadInput
    from reprokit.host.pack import reader

    pack = reader.locate_pack(pack)
    if parts := [part for part in print_trace.PARTS if chosen[part]]:
        _show_trace(pack, parts, is_whole, as_json)
        return
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
    with out.RESULTS.paged(is_whole):
        _print_contents(contents, report, signature, verdict, matches, is_whole)


def _show_trace(pack: Path, parts: list[str], is_whole: bool, as_json: bool) -> None:
    """Print parts of the traces of a pack."""
    from reprokit.host.pack import reader

    contents = reader.read_pack(pack, lambda file: file.startswith(print_trace.FOLDER))
    runs = print_trace.read_traces(contents)
    if as_json:
        rows = print_trace.to_json(runs, parts)
        out.RESULTS.print_json({"schema": 1, "pack": str(pack), "compiles": rows})
        return
    with out.RESULTS.paged(is_whole):
        print_trace.print_parts(runs, parts)


def _print_contents(
    contents: PackFiles,
    report: dict[str, Any],
    signature: dict[str, Any],
    verdict: dict[str, Any],
    matches: list[KnownMatch],
    is_whole: bool,
) -> None:
    from reprokit.cli.shared import print_report

    reason = str(verdict.get("reason", "no verdict"))
    out.RESULTS.print_line((out.one_line(str(signature.get("title") or reason)), "bold"))
    for match in matches:
        out.RESULTS.print_line(out.one_line(match.sentence))
    if report:
        print_report.print_report(report, is_whole)
    elif signature:
        out.RESULTS.print_line(out.one_line(reason))
    rows = dict(sorted(contents.sizes.items()))
    about = (
        f"signature {signature.get('id', 'none')!s:.100}, {plural(len(rows), 'file')}, all match"
        f" the manifest of {contents.manifest.get('made_by')!s:.100}"
    )
    out.RESULTS.print_line(out.one_line(about))
    listed = [f"{size:>10}  {file}" for file, size in rows.items()]
    if not is_whole:
        listed = _folded_files(rows)
    out.RESULTS.print_text(
        "".join(f"{out.one_line(row) if len(row) > 200 else row}\n" for row in listed)
    )
    for row in contents.manifest["trimmed"]:
        out.RESULTS.print_line(out.one_line(f"trimmed {row}"))


def _folded_files(sizes: Mapping[str, int]) -> list[str]:
    """Return one line for each file that is in no folder, and one for each folder."""
    folders: dict[str, list[int]] = {}
    listed: dict[str, str] = {}
    for file, size in sizes.items():
        folder, slash, _ = file.partition("/")
        if slash:
            folders.setdefault(folder, []).append(size)
        listed[f"{folder}{slash}"] = f"{size:>10}  {file}"
    for folder, parts in folders.items():
        listed[f"{folder}/"] = f"{sum(parts):>10}  {folder}/ ({plural(len(parts), 'file')})"
    return list(listed.values())
