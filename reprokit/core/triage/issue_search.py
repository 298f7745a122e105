"""What to search for before filing: the words of a title that somebody else's report of the same
bug would have too.

Key insight: the function, the type and the longest run of words without a blank stay the same in
everybody's report; what the signature blanked (``#``, ``<path>``) is what differs. A title may come
from a stranger, so nothing of it can act as a qualifier: only letters, digits, dots and underscores
are left of it, in quotes where they are several words.
"""

from __future__ import annotations

import re

from reprokit.core.records.kinds import kind_named

QUERY_CHARS = 240
"""GitHub refuses queries of more than 256 characters."""
PHRASE_WORDS = 8
LEAST_LETTERS = 6
"""A single word that is shorter says nothing."""

_FRAME = re.compile(r"(?:torch|triton)/[\w./-]*\.py:(\w+)", re.ASCII)
_FRAMES = re.compile(r"(?:[\w./-]+\.py|<\w+>):[\w<>]+(?: < \S+:[\w<>]+)*$")
_BLANK = re.compile(r"\S*(?:#|<\w+>|\.\.\.)\S*")


def search_query(title: str, repository: str) -> str:
    """The search for issues like the failure with this signature title."""
    text = f"repo:{repository} is:issue"
    for term in search_terms(title):
        longer = (
            f'{text} "{term}"' if not term.isidentifier() or term.isupper() else f"{text} {term}"
        )
        text = longer if len(longer) <= QUERY_CHARS else text
    return text


def search_terms(title: str) -> list[str]:
    """Innermost function of the compiler, type, and the message's longest run of words, as far as
    there are any.
    """
    kind, _, rest = title.partition(": ")
    phase, _, what = rest.partition(" | ")
    said, _, place = what.rpartition(" @ ") if " @ " in what else (what, "", "")
    functions = [name for name in _FRAME.findall(what) if not name.startswith("__")]
    found = functions[:1]
    if place and not _FRAME.search(place) and "<" not in place:
        found += [_plain(place)]  # the operator or the pass of a wrong result
    said = _FRAMES.sub("", said)
    type_, colon, message = said.partition(": ")
    if not colon or " " in type_:
        type_, message = "", said
    if signal := re.match(r"SIG[A-Z]+\b", said):
        type_, message = (
            signal[0],
            said[signal.end() :].removeprefix(" in").partition(": ")[2] or said[signal.end() :],
        )
    found += [_plain(type_.rpartition(".")[2]), _phrase(message) if kind != "wrong-result" else ""]
    found += [_plain(kind_named(kind).search_words)]
    known = list(dict.fromkeys(term for term in found if term))
    return (
        known
        if len(known) > 1
        else [*known, *(_plain(word) for word in (kind, phase) if _plain(word))]
    )


def _phrase(message: str) -> str:
    runs = [_plain(run).split()[:PHRASE_WORDS] for run in _BLANK.sub("\0", message).split("\0")]
    words = max(runs, key=lambda run: sum(map(len, run)), default=[])
    return " ".join(words) if len(words) > 1 or sum(map(len, words)) >= LEAST_LETTERS else ""


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^A-Za-z0-9_.]", " ", text).split()).strip(".")
