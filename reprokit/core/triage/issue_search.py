"""Make the query for existing issues: the words of a title that a different report of the same bug
would also have.

The function, the type and the longest sequence of words without a blank are the same in each
report. The parts that the signature blanked (``#``, ``<path>``) differ. A title may come from a
stranger, and must not contain qualifiers of a query. So only letters, digits, dots and underscores
of it are used, with several words in quotes.
"""

from __future__ import annotations

import re

from reprokit.core.records.finding import NO_PHASE, Identity, Signature
from reprokit.core.records.verdict_kinds import kind_named

MAX_QUERY_CHARS = 240
"""GitHub refuses queries of more than 256 characters."""
MAX_PHRASE_WORDS = 8
MIN_LETTERS = 6
"""The length of a single word that is specific enough."""

_FRAME = re.compile(r"(?:torch|triton)/[\w./-]*\.py:(\w+)", re.ASCII)
_BLANK = re.compile(r"\S*(?:#|<\w+>|\.\.\.)\S*")


def search_query(signature: Signature, repository: str) -> str:
    """Return the query for issues about a failure with this signature."""
    text = f"repo:{repository} is:issue"
    for term in search_terms(signature.parts):
        longer = (
            f'{text} "{term}"' if not term.isidentifier() or term.isupper() else f"{text} {term}"
        )
        text = longer if len(longer) <= MAX_QUERY_CHARS else text
    return text


def search_terms(parts: Identity) -> list[str]:
    """Return the innermost function of the compiler, the type, and the longest sequence of words of
    the message, as far as they exist.
    """
    kind, what, place = parts.kind, parts.what, parts.place
    functions = [name for name in _FRAME.findall(f"{what} {place}") if not name.startswith("__")]
    terms = functions[:1]
    if place and not _FRAME.search(place) and "<" not in place:
        terms += [_plain(place)]  # the operator or the pass of a wrong result
    type_, colon, message = what.partition(": ")
    if not colon or " " in type_:
        type_, message = "", what
    if signal := re.match(r"SIG[A-Z]+\b", what):
        rest = what[signal.end() :]
        rest = parts.message or rest
        type_, message = signal[0], rest.removeprefix(" in").partition(": ")[2] or rest
    terms += [_plain(type_.rpartition(".")[2]), _phrase(message) if kind != "wrong-result" else ""]
    terms += [_plain(kind_named(kind).search_words)]
    known = list(dict.fromkeys(term for term in terms if term))
    return (
        known
        if len(known) > 1
        else [*known, *(_plain(word) for word in (kind, parts.phase or NO_PHASE) if _plain(word))]
    )


def _phrase(message: str) -> str:
    runs = [_plain(run).split()[:MAX_PHRASE_WORDS] for run in _BLANK.sub("\0", message).split("\0")]
    words = max(runs, key=lambda run: sum(map(len, run)), default=[])
    return " ".join(words) if len(words) > 1 or sum(map(len, words)) >= MIN_LETTERS else ""


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^A-Za-z0-9_.]", " ", text).split()).strip(".")
