"""Look a failure up in the catalogues of known failures, for all commands that show one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reprokit.cli.shared import options as shared

if TYPE_CHECKING:
    from reprokit.core.records.finding import Signature
    from reprokit.core.triage.known_failures import KnownMatch
    from reprokit.core.triage.likeness import Traits
    from reprokit.host.pack.reopen import OpenedPack

CATALOGUES = shared.option(
    "--catalogue",
    "catalogues",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FOLDER",
    help="Also look the failure up in the catalogue in FOLDER. Can be repeated.",
)


def find_known_of_pack(opened: OpenedPack, catalogues: Sequence[Path]) -> list[KnownMatch]:
    """Return the known failures that match the failure of a pack."""
    from reprokit.core.triage import traits

    shown = traits.traits_of_failure(opened.verdict, opened.seen, opened.signature)
    return find_known(opened.signature, shown, catalogues)


def find_known_of_record(
    signature: Mapping[str, object], catalogues: Sequence[Path]
) -> list[KnownMatch]:
    """Return the known failures that match ``signature.json`` of a pack from anyone."""
    from reprokit.core.records.finding import Signature
    from reprokit.core.records.verdict_kinds import kind_named
    from reprokit.core.triage import known_failures

    title, algorithm = str(signature.get("title", ""))[:2_000], signature.get("algorithm")
    traits = known_failures.traits_of_title(title)
    if not kind_named(traits.kind).is_failure:
        return []
    number = algorithm if isinstance(algorithm, int) else 0
    return find_known(Signature(str(signature.get("id", "")), title, number), traits, catalogues)


def find_known(
    signature: Signature, traits: Traits, catalogues: Sequence[Path]
) -> list[KnownMatch]:
    """Return the known failures that a failure matches, the best first.

    Raises BadInput for a catalogue that cannot be read.
    """
    from reprokit.core.triage import known_failures
    from reprokit.host.catalogue import catalogue_files

    entries = catalogue_files.all_entries(catalogues)
    return known_failures.find_known_failures(signature, traits, entries)
