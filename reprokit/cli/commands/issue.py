"""``reprokit issue``: show which text of a pack goes into which field of an issue form."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprokit.cli.shared import known_matches, option_types, out
from reprokit.cli.shared import options as shared
from reprokit.core.shared.errors import BadInput

if TYPE_CHECKING:
    from reprokit.host.pack.issue_filing import FormFiling
    from reprokit.host.pack.reopen import OpenedPack


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
@shared.option(
    "--as-test",
    is_flag=True,
    help="Write unit tests of the repro instead: one in PyTorch's style, and one for pytest.",
)
@known_matches.CATALOGUES
@shared.JSON
@click.pass_context
def issue(
    ctx: click.Context,
    pack: Path,
    output_dir: Path | None,
    as_test: bool,
    catalogues: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Show which text of PACK, or of the pack of a run directory, goes into which field on GitHub.

    A failure that is known gets a comment for its issue. Nothing is posted: you open the form, read
    it and send it.

    \b
    Examples:
      reprokit issue reprokit-train-exception-1f2e3d4c5b6a.tar.gz
      reprokit issue PACK --output-dir texts
      reprokit issue PACK --as-test --output-dir tests
    """
    from reprokit.host.pack import issue_filing, reader, reopen

    pack = reader.locate_pack(pack)
    opened = reopen.open_pack_of_run(pack)
    if as_test:
        _print_tests(opened, output_dir, catalogues, as_json)
        return
    if why := issue_filing.why_not_filed(opened):
        if as_json:
            out.RESULTS.print_json({"schema": 1, "pack": str(pack), "is_bug": False, "why": why})
        else:
            out.RESULTS.print_line(f"{pack} is not a bug to file: {why}")
        ctx.exit(1)
    matches = known_matches.find_known_of_pack(opened, catalogues)
    filing = issue_filing.prepare_filing(opened, matches)
    if not any(field.files for field in filing.fields):
        raise BadInput(
            f"{pack} has no text for an issue; capture it again, or copy from reprokit show"
            f" {shlex.quote(str(pack))}"
        )
    written = _write_texts(filing, output_dir) if output_dir else {}
    if as_json:
        out.RESULTS.print_json(
            {
                "schema": 1,
                "pack": str(pack),
                "is_bug": True,
                "form": filing.form,
                "begin_with": filing.begin_with,
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
                "known": [match.to_json() for match in matches],
            }
        )
    else:
        for match in matches:
            out.RESULTS.print_line((out.one_line(match.sentence), "bold"))
        _print_filing(filing, pack, written)


def _print_tests(
    opened: OpenedPack, output_dir: Path | None, catalogues: Sequence[Path], as_json: bool
) -> None:
    """Print or write the unit tests of a repro."""
    from reprokit.core.judge import same_failure
    from reprokit.core.triage import known_failures, unit_tests

    path = opened.pack.path
    if not opened.repro.strip():
        raise BadInput(f"{path} has no proved repro, of which a test could be made")
    if same_failure.needs_cache(opened.signature):
        raise BadInput(f"{path} has a repro of two processes, which cannot become a test")
    if opened.kernel or opened.gpu or "reprokit" in opened.repro:
        raise BadInput(f"{path} needs reprokit's simulation of a GPU, which a test does not have")
    matches = known_matches.find_known_of_pack(opened, catalogues)
    is_known = bool(matches) and matches[0].how == known_failures.SAME
    known = matches[0].entry.url or matches[0].entry.issue if is_known else ""
    note = known or opened.signature.title
    try:
        tests = unit_tests.unit_tests(opened.repro, opened.signature.parts, out.one_line(note, 80))
    except ValueError as problem:
        raise BadInput(f"the repro of {path} cannot become a test: {problem}") from problem
    written = _write_files({test.file: test.text for test in tests}, output_dir)
    if as_json:
        rows = [
            {
                "style": test.style,
                "file": test.file,
                "belongs_in": test.belongs_in,
                "path": written.get(test.file),
                "text": test.text,
            }
            for test in tests
        ]
        out.RESULTS.print_json({"schema": 1, "pack": str(path), "tests": rows})
        return
    for test in tests:
        where = f", belongs in {test.belongs_in}" if test.belongs_in else ""
        out.RESULTS.print_line((f"{written.get(test.file, test.file)}{where}", "bold"))
        if not written:
            out.RESULTS.print_text(test.text)


def _file_name(field: str) -> str:
    """Return the name of the file below --output-dir for the text of a field."""
    known = {"Describe the bug": "describe.md", "Environment details": "environment.md"}
    return known.get(field) or re.sub(r"\W+", "_", field.lower()) + ".md"


def _write_texts(filing: FormFiling, folder: Path) -> dict[str, str]:
    """Write each text to a file, and return the paths by field."""
    names = {field.name: _file_name(field.name) for field in filing.fields if field.files}
    texts = {names[f.name]: out.clean_text(f.text) for f in filing.fields if f.files}
    written = _write_files(texts, folder)
    return {field: written[name] for field, name in names.items()}


def _write_files(texts: Mapping[str, str], folder: Path | None) -> dict[str, str]:
    """Write texts below a folder, and return the path of each; nothing without a folder."""
    from reprokit.host.system import files

    if folder is None:
        return {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return {
            name: str(files.write_atomically(folder / name, text)) for name, text in texts.items()
        }
    except OSError as problem:
        raise BadInput(
            f"cannot write below {folder}: {problem.strerror or problem}; name a writable"
            " --output-dir"
        ) from problem


def _print_filing(filing: FormFiling, pack: Path, written: dict[str, str]) -> None:
    from reprokit.host.pack.issue_filing import MAX_FIELD_CHARS
    from reprokit.host.pack.writer import MAX_PACK_BYTES

    rows = [
        ("search first", filing.query),
        ("", filing.search_url),
        ("open", filing.url),
        ("comment on" if filing.begin_with else "title", filing.title),
    ]
    if filing.begin_with:
        rows.append(("begin with", filing.begin_with))
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
            f"reprokit show {shlex.quote(str(pack))} --file NAME prints one of these texts,"
            " --output-dir writes them all."
        )
    own = "" if filing.begin_with else "Replace the comment at the start by your own sentence. "
    out.RESULTS.print_line(f"{own}Nothing was posted.")
