"""Write Markdown in which no text of a target is markup. This is the only module that escapes.

Key insight: GitHub looks for mentions, references, commits and addresses in the text after Markdown
is rendered, so no escape character stops it, but it does not change code. So a word that could be
more than a word becomes a code span. Templates do this by default: every value is escaped unless a
filter of this module made it.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import jinja2

from reprokit.core.redaction.plain import clean_text

_LIVE = re.compile(
    r"[\\`*\[\]<&#@$]|\S~"  # markup, HTML, references, mentions, formulas
    r"|_(?![^\W_])"  # could end emphasis; an underscore inside a word or before one does not
    r"|//|\bwww\.|:[\w+-]+:"  # addresses, emoji
    # commits, references
    r"|(?<![0-9A-Za-z])[0-9A-Fa-f]{7,}(?![0-9A-Za-z])|[A-Z]-\d|\bGHSA-|\b[Gg][Hh]-\d"
)
_ALONE = frozenset("@#&*~$_<>")
"""Between spaces these are not markup."""
_FIRST = re.compile(r"[-+=#>*~_|:]+|>.*|\d{1,9}[.)]")
"""A first word that begins a heading, a list, a quotation or a rule."""
_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_WORD = re.compile(r"(['\"(]*)(.*?)([.,;:'\")?!]*)", re.DOTALL)


class Markdown(str):
    """Text that is markup of reprokit, or is escaped."""

    __slots__ = ()


def inline(text: object) -> Markdown:
    """One line of text without markup, mentions, references or addresses; text in backticks is
    code.
    """
    found = ""
    for place, part in enumerate(_CODE.split(" ".join(clean_text(str(text)).split()))):
        piece = code(part) if place % 2 else _words(part, is_start=not place)
        found += " " * (found.endswith("`") and piece.startswith("`")) + piece
    return Markdown(found)


def _words(text: str, is_start: bool) -> str:
    """The words of a text without code; words that could be more than words become code."""
    found: list[str] = []
    held: list[str] = []  # words that become one code span
    for place, word in enumerate(text.split(" ")):
        is_first = is_start and not place and _FIRST.fullmatch(word)
        is_live = is_first or (word not in _ALONE and (_LIVE.search(word) or word.endswith(">")))
        if held and not is_live:
            found.append(_span(held))
            held = []
        (held if is_live else found).append(word)
    return " ".join([*found, _span(held)] if held else found)


def _span(words: list[str]) -> str:
    found = _WORD.fullmatch(" ".join(words))
    assert found is not None
    before, core, after = found.groups()
    return (
        f"{before}{code(core)}{after}"
        if core and not _LIVE.search(before + after)
        else code(" ".join(words))
    )


def code(text: object) -> Markdown:
    """A code span that the text inside cannot close."""
    line = " ".join(clean_text(str(text)).split()) or " "
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    return Markdown(f"{ticks} {line} {ticks}" if "`" in line else f"{ticks}{line}{ticks}")


def cell(text: object) -> Markdown:
    """:func:`inline`, or finished Markdown, for a cell of a table, in which a bar ends even
    code.
    """
    return Markdown((text if isinstance(text, Markdown) else inline(text)).replace("|", "\\|"))


def fence(text: object, language: str, indent: int = 0) -> Markdown:
    """A code block that its content cannot close, indented by ``indent`` spaces. A program does not
    change.
    """
    held = (
        str(text)
        if language == "python"
        else clean_text(str(text).replace("\r\n", "\n").replace("\r", "\n"))
    )
    longest = max((len(run) for run in re.findall(r"`{3,}", held)), default=2)
    ticks = "`" * (longest + 1)
    block = f"{ticks}{language}\n{held.rstrip()}\n{ticks}"
    return Markdown(re.sub(r"(?m)^|(?<=\r)(?!\n)", " " * indent, block) if indent else block)


def link(words: str, target: object) -> Markdown:
    """A link to a file below the folder of the Markdown file."""
    return Markdown(f"[{words}]({quote(str(target).lstrip('/'), safe='/-._~', errors='replace')})")


def title(text: str) -> str:
    """A title for a form of GitHub, without mentions and references."""
    return re.sub(r"(@|#|://|\b[Gg][Hh]-)(?=\w)", r"\1 ", " ".join(clean_text(text).split()))


def escaped(value: object) -> object:
    """The text of a value in a template: numbers and Markdown of reprokit are unchanged, all else
    is escaped.
    """
    return value if isinstance(value, (Markdown, int, float, jinja2.Undefined)) else inline(value)


def one_line(text: object, most: int) -> str:
    """The text on one line, cut at its end."""
    line = " ".join(clean_text(str(text)).split())
    return line if len(line) <= most else line[: most - 3] + "..."


def environment(loader: jinja2.BaseLoader) -> jinja2.Environment:
    """The environment for templates of Markdown; an unknown name in one is an error."""
    env = jinja2.Environment(  # noqa: S701 - escaped as Markdown, not as HTML
        loader=loader,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        finalize=escaped,
    )
    env.filters.update(fence=fence, code=code, cell=cell, link=link, one_line=one_line)
    return env


def fill(env: jinja2.Environment, name: str, **values: Any) -> Markdown:
    """Fill a template."""
    return Markdown(env.get_template(name).render(**values))
