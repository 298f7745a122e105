"""A text that rules change one after the other, with the position of each change in the original
text.
"""

from __future__ import annotations

import bisect

from reprokit.core.redaction.rules.searched_text import SearchedText
from reprokit.core.redaction.rules.secret_places import Span


class TextDraft:
    """A text in which rules replace spans, with the position of each replacement in the original
    text.
    """

    def __init__(self, text: str) -> None:
        self.searched = SearchedText(text)
        self.edits: list[tuple[int, int, str]] = []
        """Start and end in the original text, and the replacement; in order."""
        self._starts: list[int] = []
        """The start of each edit in the current text."""

    @property
    def text(self) -> str:
        """The current text."""
        return self.searched.text

    def replace_spans(self, spans: list[Span]) -> None:
        """Replace the text of each span by its third value; spans are in order and do not
        overlap.
        """
        before = self.searched.text
        pieces: list[str] = []
        places: list[tuple[int, int]] = []
        longer = 0
        new: list[tuple[int, int, str]] = []
        done = 0
        for start, end, text in spans:
            if start < done:
                continue
            pieces += (before[done:start], text)
            done = end
            places.append((start + longer, start + longer + len(text)))
            longer += len(text) - (end - start)
            begin, stop = self._original(start, is_end=False), self._original(end, is_end=True)
            new.append((begin, stop, text))
        self.searched = self.searched.replaced("".join((*pieces, before[done:])), places)
        kept = []
        index = 0
        for edit in self.edits:
            while index < len(new) and new[index][1] <= edit[0]:
                index += 1
            if index == len(new) or edit[1] <= new[index][0]:
                kept.append(edit)
        self.edits = sorted([*kept, *new])
        self._starts = []
        shift = 0
        for start, end, text in self.edits:
            self._starts.append(start + shift)
            shift += len(text) - (end - start)

    def _original(self, position: int, is_end: bool) -> int:
        """Return the position in the original text; inside a replacement, the edge of the replaced
        text.
        """
        bisect_edits = bisect.bisect_left if is_end else bisect.bisect_right
        number = bisect_edits(self._starts, position) - 1
        if number < 0:
            return position
        start, end, text = self.edits[number]
        over = position - self._starts[number] - len(text)
        return end + over if over >= 0 else end if is_end else start
