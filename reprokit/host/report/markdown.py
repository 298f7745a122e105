"""Write Markdown in which no text of a target is markup. No other module escapes Markdown.

Key insight: GitHub searches the rendered text for mentions, references, commits and addresses, so
no escape character prevents a link, but it does not search code. So a word that GitHub could change
becomes a code span. Templates do this by default: every value is escaped, except results of the
filters of this module.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import jinja2

from reprokit.core.records.claims import Claim
from reprokit.core.redaction.plain import clean_text

_LIVE = re.compile(
    r"[\\`*\[\]<&#@$]|\S~"  # markup, HTML, references, mentions, formulas
    r"|_(?![^\W_])"  # could end emphasis; an underscore inside a word or before one does not
    r"|//|\bwww\.|:[\w+-]+:"  # addresses, emoji
    # commits, references
    r"|(?<![0-9A-Za-z])[0-9A-Fa-f]{7,}(?![0-9A-Za-z])|[A-Z]-\d|\bGHSA-|\b[Gg][Hh]-\d"
)
_ALONE = frozenset("@#&*~$_<>")
"""Words that are not markup between spaces."""
MAX_BRACKET_WORDS = 12
_FIRST = re.compile(r"[-+=#>*~_|:]+|>.*|\d{1,9}[.)]")
"""A first word that starts a heading, a list, a quotation or a rule."""
_START = re.compile(
    r"^([A-Z][A-Za-z ]+:|Still fails|Fails in a different way|Cannot tell|Passes)(?!\w)"
)
"""The first words of a text that are bold."""
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_WORD = re.compile(r"(['\"(]*)(.*?)([.,;:'\")?!]*)", re.DOTALL)


class Markdown(str):
    """Text that is escaped, or is markup of reprokit."""

    __slots__ = ()


def escape_line(text: object) -> Markdown:
    """Return the text on one line, without markup, mentions, references or addresses.

    Text in backticks is code.
    """
    line = ""
    for place, part in enumerate(_CODE.split(" ".join(clean_text(str(text)).split()))):
        piece = code_span(part) if place % 2 else _words(part, is_start=not place)
        line += " " * (line.endswith("`") and piece.startswith("`")) + piece
    return Markdown(line)


def _words(text: str, is_start: bool) -> str:
    """Return the words of a text, with code spans for words that GitHub could change."""
    parts: list[str] = []
    pending: list[str] = []  # words that become one code span
    words, last = text.split(" "), -1
    for place, word in enumerate(words):
        is_first = is_start and not place and _FIRST.fullmatch(word)
        is_live = is_first or (word not in _ALONE and (_LIVE.search(word) or word.endswith(">")))
        if is_live:
            last = max(last, _end_of_bracket(words, place))
        is_live = is_live or place <= last
        if pending and not is_live:
            parts.append(_span(pending))
            pending = []
        (pending if is_live else parts).append(word)
    return " ".join([*parts, _span(pending)] if pending else parts)


def _end_of_bracket(words: list[str], first: int) -> int:
    """Return the index of the word that closes a bracket that a word opens, as in ``[0, 1]``; that
    of the word itself if it opens none, or none of the next words closes it.
    """
    depth = 0
    for place, word in enumerate(words[first : first + MAX_BRACKET_WORDS], first):
        depth += sum(map(word.count, "[<")) - sum(map(word.count, "]>"))
        if depth <= 0:
            return place
    return first


def _span(words: list[str]) -> str:
    match = _WORD.fullmatch(" ".join(words))
    assert match is not None
    before, core, after = match.groups()
    return (
        f"{before}{code_span(core)}{after}"
        if core and not _LIVE.search(before + after)
        else code_span(" ".join(words))
    )


def code_span(text: object) -> Markdown:
    """Return a code span that the text inside cannot close."""
    line = " ".join(clean_text(str(text)).split()) or " "
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    return Markdown(f"{ticks} {line} {ticks}" if "`" in line else f"{ticks}{line}{ticks}")


def table_cell(text: object) -> Markdown:
    """Return text or Markdown for a table cell, with escaped bars: a bar ends a cell even in
    code.
    """
    return Markdown((text if isinstance(text, Markdown) else escape_line(text)).replace("|", "\\|"))


def code_block(text: object, language: str, indent: int = 0) -> Markdown:
    """Return a code block that its content cannot close, indented by ``indent`` spaces.

    The text of a Python program is not changed.
    """
    content = (
        str(text)
        if language == "python"
        else clean_text(str(text).replace("\r\n", "\n").replace("\r", "\n"))
    )
    longest = max((len(run) for run in re.findall(r"`{3,}", content)), default=2)
    ticks = "`" * (longest + 1)
    block = f"{ticks}{language}\n{content.rstrip()}\n{ticks}"
    return Markdown(re.sub(r"(?m)^|(?<=\r)(?!\n)", " " * indent, block) if indent else block)


def file_link(words: str, target: object) -> Markdown:
    """Return a link to a file in or below the folder of the Markdown file."""
    return Markdown(f"[{words}]({quote(str(target).lstrip('/'), safe='/-._~', errors='replace')})")


def issue_title(text: str) -> str:
    """Return a title for an issue form of GitHub, without mentions and references."""
    return re.sub(r"(@|#|://|\b[Gg][Hh]-)(?=\w)", r"\1 ", " ".join(clean_text(text).split()))


def escape_value(value: object) -> object:
    """Return a value of a template, escaped unless it is a number or Markdown of reprokit."""
    return (
        value if isinstance(value, (Markdown, int, float, jinja2.Undefined)) else escape_line(value)
    )


def one_line(text: object, max_chars: int) -> str:
    """Return the text on one line, cut at the end."""
    line = " ".join(clean_text(str(text)).split())
    return line if len(line) <= max_chars else line[: max_chars - 3] + "..."


def template_environment(loader: jinja2.BaseLoader) -> jinja2.Environment:
    """Return the environment for Markdown templates; an unknown name in a template is an error."""
    env = jinja2.Environment(  # noqa: S701 - escaped as Markdown, not as HTML
        loader=loader,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=escape_value,
    )
    env.filters.update(
        fence=code_block, code=code_span, cell=table_cell, link=file_link, one_line=one_line
    )
    return env


def claims_environment(loader: jinja2.BaseLoader) -> jinja2.Environment:
    """Return the environment for Markdown templates that print only claims and quotations.

    A text that is not a claim must be a quotation, in code or in a table cell: TypeError.
    """
    env = template_environment(loader)
    env.finalize = _stated
    env.filters["bold_start"] = lambda text: Markdown(_START.sub(r"**\1**", text))
    env.filters["claims"] = lambda rows, max_chars: escape_line(
        one_line(" ".join(_text_of(row) for row in rows), max_chars)
    )
    env.filters["one_line"] = lambda row, max_chars: escape_line(one_line(_text_of(row), max_chars))
    return env


def _text_of(value: object) -> str:
    if not isinstance(value, Claim):
        raise TypeError(f"{value!r:.80} is stated without evidence")
    return value.text


def _stated(value: object) -> object:
    if isinstance(value, (Markdown, int, float, jinja2.Undefined)):
        return value
    return escape_line(_text_of(value))


def render_template(env: jinja2.Environment, name: str, **values: Any) -> Markdown:
    """Render a template."""
    return Markdown(env.get_template(name).render(**values))
