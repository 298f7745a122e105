"""Read the Markdown of an issue: its title, its prose and its code blocks. It follows no links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from reprokit.core.reported import issue_programs, reported_failure
from reprokit.core.reported.issue_programs import CodeBlock
from reprokit.core.shared.errors import BadInput
from reprokit.host.scrub.run_issue import IssueProgram

MAX_BYTES = 256 << 10
"""GitHub refuses a body of more than 65,536 characters; comments may be pasted below it."""
_DETAILS = re.compile(r"</?(?:details|summary)\b[^>\n]{0,200}>")
"""Tags with which GitHub folds a part; Markdown takes what follows them for HTML."""


@dataclass(frozen=True)
class IssueParts:
    """The parts of the text of an issue."""

    title: str
    prose: str
    blocks: tuple[CodeBlock, ...]


def read_file(path: Path) -> str:
    """Return the text of a file; raises BadInput if it cannot be one of an issue."""
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path} is not a file; name the file with the text of the issue")
        if path.stat().st_size > MAX_BYTES:
            raise BadInput(
                f"{path} is larger than {MAX_BYTES} bytes, so it is not the text of an issue"
            )
        return check_text(path.read_bytes(), str(path))
    except OSError as problem:
        raise BadInput(f"cannot read {path}: {problem.strerror or problem}") from problem


def check_text(data: bytes, name: str) -> str:
    """Return the text of bytes; raises BadInput for other data."""
    if len(data) > MAX_BYTES:
        raise BadInput(
            f"{name} is larger than {MAX_BYTES} bytes, so it is not the text of an issue"
        )
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as problem:
        raise BadInput(f"{name} is not UTF-8: {problem.reason}") from problem
    if not text.strip():
        raise BadInput(f"{name} is empty; give the Markdown text of an issue")
    return text


def split_issue(text: str) -> IssueParts:
    """Return the parts of a Markdown text; the first heading of level 1, or row, is the title."""
    tokens = MarkdownIt("commonmark").parse(_DETAILS.sub("", text))
    blocks, prose, title = [], [], ""
    for index, token in enumerate(tokens):
        if token.type in ("fence", "code_block"):
            words = token.info.split()
            first = token.map[0] if token.map else 0
            line = first + (2 if token.type == "fence" else 1)
            blocks.append(CodeBlock(words[0].lower() if words else "", token.content, line))
        elif token.type in ("inline", "html_block"):
            if (
                not title
                and tokens[index - 1].type == "heading_open"
                and tokens[index - 1].tag == "h1"
            ):
                title = token.content.strip()
            else:
                prose.append(token.content)
    return IssueParts(title, "\n".join(prose), tuple(blocks))


def read_issue(text: str, block: int = 0) -> list[IssueProgram]:
    """Return the programs of an issue, how to run them, and what it reports.

    Raises:
        NoProgram: the text has no complete program.
    """
    parts = split_issue(text)
    title = parts.title or next(iter(parts.prose.strip().splitlines()), "")[:200]
    command = reported_failure.read_command(parts.blocks, parts.prose)
    return [
        IssueProgram(
            title,
            program,
            command,
            reported_failure.read_failure(parts.title, parts.prose, parts.blocks, program.text),
        )
        for program in issue_programs.find_programs(parts.blocks, block)
    ]
