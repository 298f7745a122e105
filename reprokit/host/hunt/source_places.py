"""The sources of a hunt on the command line, and the folders of programs that some of them read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from reprokit.core.shared.errors import BadInput
from reprokit.host.catalogue import catalogue_files
from reprokit.host.environment.query_transformers import query_transformers
from reprokit.host.request.target import Target
from reprokit.host.system import files

SOURCES = ("opinfo", "types", "views", "python", "config", "mutate", "models")
PARENTS_FOLDER = "parents"
"""The folder of the programs that ``mutate`` changes."""
UNUSED_KINDS = ("hang", "slow-compile", "crash")
"""Kinds of known failures whose programs end or delay the process of other targets."""
_UNUSED = re.compile(
    # what can be defined only once in a process, needs a GPU or other processes, or enters the
    # compiler without torch.compile
    r"torch\.library|triton|distributed|subprocess|os\.environ|torch\.export|aoti|__main__|threading"
)


def read_sources(words: str) -> tuple[str, ...]:
    """Return the sources of ``--source``, with absolute paths; raises BadInput for a wrong one."""
    found = []
    for word in words.split(","):
        name, sign, place = word.strip().partition("=")
        if name not in SOURCES:
            raise BadInput(f"--source {name}: there is no such source; use {', '.join(SOURCES)}")
        if sign and name not in ("mutate", "models"):
            raise BadInput(
                f"--source {word.strip()}: only mutate=FILE.py[:FACTORY] and models=TYPE[+TYPE]"
                " have a place"
            )
        if sign and name == "mutate":
            path, _, factory = place.partition(":")
            if not Path(path).is_file():
                raise BadInput(f"--source mutate={place}: there is no file {path}")
            place = f"{Path(path).resolve()}{factory and ':'}{factory}"
        found.append(f"{name}{sign}{place}")
    return tuple(found)


def check_sources(sources: Sequence[str], python: str) -> None:
    """Raise BadInput if the interpreter lacks what a source needs, or has no such model."""
    for source in sources:
        name, _, place = source.partition("=")
        if name == "models":
            known = query_transformers(python, Target("hf"))["types"]
            for one in filter(None, place.split("+")):
                if one not in known:
                    raise BadInput(
                        f"--source {source}: transformers has no type {one}; reprokit models hf:"
                        " lists them all"
                    )


def prepare_places(hunt: Path, sources: Sequence[str]) -> list[str]:
    """Return the sources with the folders that their generators read, and write these folders."""
    return [
        f"mutate={_parents(hunt, source)}" if source.startswith("mutate") else source
        for source in sources
    ]


def _parents(hunt: Path, source: str) -> Path:
    """Write the programs that are changed, unless they are there, and return their folder."""
    folder = hunt / PARENTS_FOLDER
    if folder.is_dir():
        return folder
    place = source.partition("=")[2]
    programs = _user_program(place) if place else _known_programs()
    written = hunt / f"{PARENTS_FOLDER}.part"
    written.mkdir(exist_ok=True)
    for name, text in programs.items():
        files.write_atomically(written / name, text)
    return written.rename(folder)


def _user_program(place: str) -> dict[str, str]:
    path, _, factory = place.partition(":")
    text = files.read_text(Path(path))
    if factory and factory != "make":
        text += f"\n\nmake = {factory}\n"
    return {Path(path).name: text}


def _known_programs() -> dict[str, str]:
    """Return the programs of the catalogue that can be run many times in one process of a CPU."""
    return {
        f"{catalogue_files.file_name(entry).removesuffix('.toml')}.py": entry.program
        for entry in catalogue_files.own_catalogue()
        if not entry.gpu
        and entry.kind not in UNUSED_KINDS
        and "torch.compile" in entry.program
        and not _UNUSED.search(entry.program)
    }
