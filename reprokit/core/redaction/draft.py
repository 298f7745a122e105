"""A text that rules change one after the other, with the place of each change in the original
text.
"""

from __future__ import annotations

import bisect

from reprokit.core.redaction.rules.secret_places import Span


class TextDraft:
    """A text in which rules replace spans in turn, and the place of each replacement in the
    original text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.edits: list[tuple[int, int, str]] = []
        """Start and end in the original text, and the replacement; in order."""
        self._places: list[int] = []
        """Where each edit starts in the present text."""

    def replace(self, spans: list[Span]) -> None:
        """Replace the text of each span by the third value of the span; spans are in order and do
        not overlap.
        """
        pieces: list[str] = []
        new: list[tuple[int, int, str]] = []
        done = 0
        for start, end, text in spans:
            if start < done:
                continue
            pieces += (self.text[done:start], text)
            done = end
            new.append((self._first(start, is_end=False), self._first(end, is_end=True), text))
        self.text = "".join((*pieces, self.text[done:]))
        kept = []
        place = 0
        for edit in self.edits:
            while place < len(new) and new[place][1] <= edit[0]:
                place += 1
            if place == len(new) or edit[1] <= new[place][0]:
                kept.append(edit)
        self.edits = sorted([*kept, *new])
        self._places = []
        shift = 0
        for start, end, text in self.edits:
            self._places.append(start + shift)
            shift += len(text) - (end - start)

    def _first(self, place: int, is_end: bool) -> int:
        """The place in the original text; inside a replacement, the edge of the replaced text."""
        number = (bisect.bisect_left if is_end else bisect.bisect_right)(self._places, place) - 1
        if number < 0:
            return place
        start, end, text = self.edits[number]
        over = place - self._places[number] - len(text)
        return end + over if over >= 0 else end if is_end else start
