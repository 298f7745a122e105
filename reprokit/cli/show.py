"""``reprokit show``: verify a pack and print what is in it; nothing of it is run or written to disk."""

from __future__ import annotations

from pathlib import Path

import click

from . import screen


@click.command()
@click.argument("pack", type=click.Path(path_type=Path))
@click.option("--file", "name", help="Print one file of the pack instead.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout and nothing else.")
def show(pack: Path, name: str | None, as_json: bool) -> None:
    """Verify PACK, or the pack of a run directory, against its manifest and print what is in it.

    A pack from a stranger is treated as hostile: unsafe names, links, devices and bombs are refused,
    nothing is extracted, nothing is run.

    \b
    Examples:
      reprokit show reprokit-llama40b-exception-1f2e3d4c5b6a.tar.gz
      reprokit show PACK --file issue.md
    """
    from ..core.records import BadInput
    from ..host import archive

    pack = archive.locate(pack)
    found = archive.read(pack)
    verdict, signature = found.json("verdict.json"), found.json("signature.json")
    if name is not None:
        if name not in found.files:
            raise BadInput(f"{pack} holds no {name!r}; reprokit show {pack} lists its files")
        text = found.files[name].decode("utf-8", "replace")
        if as_json:
            screen.print_json({"schema": 1, "pack": str(pack), "file": name, "text": text})
        else:
            click.echo(screen.safe(text), nl=False)
        return
    rows = {n: len(d) for n, d in sorted(found.files.items())}
    if as_json:
        screen.print_json(
            {
                "schema": 1,
                "pack": str(pack),
                "verified": True,
                "verdict": verdict,
                "signature": signature,
                "report": found.json("report.json"),
                "trimmed": found.manifest.get("trimmed", []),
                "files": rows,
            }
        )
        return
    from rich.markup import escape

    from . import tell

    out = screen.console()

    def text_of(value: object) -> str:
        return escape(screen.safe(" ".join(str(value).split())))

    out.print(f"[bold]{text_of(signature.get('title', 'no signature'))}[/]")
    if model := found.json("report.json"):
        tell.report(out, model)
    else:
        out.print(text_of(verdict.get("reason", "no verdict")))
    out.print(
        f"signature {text_of(signature.get('id'))}, {len(rows)} files, all agree with the manifest of {text_of(found.manifest.get('made_by'))}"
    )
    for file, size in rows.items():
        out.print(f"{size:>10}  {text_of(file)}")
    for trimmed in found.manifest.get("trimmed", []):
        out.print(f"trimmed {text_of(trimmed)}")
