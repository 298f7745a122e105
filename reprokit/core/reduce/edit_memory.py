"""Remember the edits after which a program no longer failed, so that they are not tried again.

A reduction applies its passes until none of them changes the program. Most edits of the later
rounds were tried before, on a program that had more lines. If the failure needed a line there, a
part of that program needs it too, except for failures that are not monotone (Zeller and Hildebrandt
2002, section 3.1). The known edit is identified by the lines that it removes and adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

Answer = Callable[[str], bool | None]
"""True if a program fails in the same way, False if it does not fail; None for any other answer,
which says nothing about other programs.
"""


class EditMemory:
    """Answers whether edited programs fail, without asking twice about the same edit."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._rejected: set[object] = set()
        self._lines: Counter[str] = Counter()

    def begin_pass(self, text: str) -> None:
        """Set the program that the next pass edits."""
        self._lines = Counter(text.splitlines())

    def shows_failure(self, text: str) -> bool:
        """Return True when an edit of the program still shows the failure.

        The edited program then takes the place of the program.
        """
        lines = Counter(text.splitlines())
        edit = (
            frozenset((self._lines - lines).items()),
            frozenset((lines - self._lines).items()),
        )
        if edit in self._rejected:
            return False
        answer = self._answer(text)
        if answer:
            self._lines = lines
        elif answer is False:
            self._rejected.add(edit)
        return bool(answer)
