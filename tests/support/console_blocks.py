"""Run the console blocks of the documents, and rewrite their output.

    python -m tests.support.console_blocks          run all folders
    python -m tests.support.console_blocks wrong    run one folder

A block that is run has a comment on the line before it, ``<!-- run in NAME -->``. All blocks with
one name run in one folder, the README first; the folder has a copy of ``samples``. A line that
begins with ``$`` is a command, the lines below it are its stdout. A line ``...`` stands for any
lines. Stderr has the progress, which depends on the time, and is not shown.
"""

from __future__ import annotations

import difflib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.environments import ROOT, clean_environ

HOME = "/home/you"
"""The folder of the commands, as the documents show it."""
ELLIPSIS = "..."
TIMEOUT_S = 1_200
_BLOCK = re.compile(
    r"^<!-- run in (?P<folder>[\w-]+) -->\n\n?(?P<open>```console\n)(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"(?<![\w.])\d+(,\d{3})*(\.\d+)?(?!\w)")


@dataclass(frozen=True)
class ConsoleBlock:
    """One block of a document that is run."""

    document: Path
    folder: str
    body: str

    def calls(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each command and the lines below it."""
        command, lines = "", []
        for line in self.body.splitlines():
            if line.startswith("$ "):
                if command:
                    yield command, lines
                command, lines = line[2:], []
            else:
                lines.append(line)
        yield command, lines


def documents() -> list[Path]:
    """Return the README and all pages, in the order in which their blocks run."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def find_blocks(document: Path) -> list[ConsoleBlock]:
    """Return the blocks of a document that are run."""
    return [
        ConsoleBlock(document, match["folder"], match["body"])
        for match in _BLOCK.finditer(document.read_text())
    ]


def all_blocks() -> dict[str, list[ConsoleBlock]]:
    """Return the blocks of all documents by the folder in which they run."""
    blocks: dict[str, list[ConsoleBlock]] = {}
    for document in documents():
        for block in find_blocks(document):
            blocks.setdefault(block.folder, []).append(block)
    return blocks


def run_command(command: str, folder: Path, **variables: str) -> str:
    """Return the stdout of a command in a folder, with ``HOME`` as the name of the folder.

    All steps of a capture are on, as for a user; ``variables`` may change that.
    """
    environ = clean_environ(REPROKIT_MINIMIZE="1", REPROKIT_ABLATE="1", **variables)
    for name in {"REPROKIT_COMPARE", "REPROKIT_PROOFS"} - set(variables):  # the defaults
        del environ[name]
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return show_as_home(done.stdout, folder)


def show_as_home(text: str, folder: Path) -> str:
    """Return a text with ``HOME`` instead of the folder."""
    quoted = shlex.quote(f"{folder}/")
    if quoted.endswith("'"):  # in a command, where HOME needs no quotes
        text = re.sub(rf"{re.escape(quoted[:-1])}([^'\n]*)'", rf"{HOME}/\1", text)
    return text.replace(str(folder), HOME)


def prepare_folder(folder: Path) -> None:
    """Copy the samples, which the commands of the documents name, into a folder."""
    shutil.copytree(
        ROOT / "samples", folder / "samples", ignore=shutil.ignore_patterns("__pycache__")
    )


def mask_line(line: str) -> str:
    """Return a line without what depends on the machine: numbers and trailing spaces."""
    return _NUMBER.sub("#", line.rstrip())


def is_shown_by(lines: list[str], output: str) -> bool:
    """Return whether the lines of a block show an output, apart from numbers."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == ELLIPSIS else re.escape(mask_line(line)) + r"\n"
        for line in lines
    )
    actual = "".join(mask_line(line) + "\n" for line in output.splitlines())
    return re.fullmatch(pattern, actual) is not None


def merge_output(lines: list[str], output: str) -> list[str]:
    """Return the lines of an output; where the old lines have ``...``, so has the result."""
    new = [line.rstrip() for line in output.splitlines()]
    if not lines:
        return new
    matcher = difflib.SequenceMatcher(
        None, [mask_line(line) for line in lines], [mask_line(line) for line in new], autojunk=False
    )
    merged: list[str] = []
    for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
        if tag != "equal" and ELLIPSIS in lines[old_from:old_to]:
            merged.append(ELLIPSIS)
        else:
            merged += new[new_from:new_to]
    return merged


def rewrite_document(document: Path, outputs: Mapping[tuple[str, str], str]) -> bool:
    """Write the outputs, by folder and command, into the blocks of a document. Return whether it
    changed.
    """
    text = document.read_text()

    def rewrite(match: re.Match[str]) -> str:
        block = ConsoleBlock(document, match["folder"], match["body"])
        lines: list[str] = []
        for command, old in block.calls():
            output = outputs.get((block.folder, command))
            lines += [f"$ {command}", *(old if output is None else merge_output(old, output))]
        body = "".join(f"{line}\n" for line in lines)
        start = match.start("body") - match.start()
        return f"{match[0][:start]}{body}```"

    new = _BLOCK.sub(rewrite, text)
    if new != text:
        document.write_text(new)
    return new != text


def run_folder(
    blocks: list[ConsoleBlock],
    folder: Path,
    run: Callable[[str, Path], str] = run_command,
) -> dict[tuple[str, str], str]:
    """Run the commands of all blocks of one folder; return their outputs by folder and command."""
    outputs: dict[tuple[str, str], str] = {}
    for block in blocks:
        for command, _ in block.calls():
            if (block.folder, command) not in outputs:
                outputs[block.folder, command] = run(command, folder)
    return outputs


def main() -> None:
    """Run the blocks, and rewrite the documents."""
    wanted = sys.argv[1:]
    for name, blocks in all_blocks().items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory(prefix="reprokit-documents-") as place:
            prepare_folder(Path(place))
            outputs = run_folder(blocks, Path(place))
        for document in dict.fromkeys(block.document for block in blocks):
            if rewrite_document(document, outputs):
                print(f"{document.relative_to(ROOT)}: changed ({name})")


if __name__ == "__main__":
    main()
