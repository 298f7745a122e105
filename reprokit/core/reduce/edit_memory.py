"""Remember the edits after which a program no longer failed, so that they are not tried again.

A reduction applies its passes until none of them changes the program. Most edits of the later
rounds were tried before, on a program that had more lines. If the failure needed a line there, a
part of that program needs it too, except for failures that are not monotone (Zeller and Hildebrandt
2002, section 3.1). An edit is known by the lines between its first and its last change, before and
after it.

An edit after which a program fails in a different way, such as with a NameError, may show the
failure when what else needs the line is gone. Most such edits still fail, so they are tried again
only when no other edit makes the program smaller.
"""

from __future__ import annotations

from collections.abc import Callable

Edit = tuple[int, tuple[str, ...], tuple[str, ...]]


class EditMemory:
    """Knows the edits of a program after which it did not fail, or failed in a different way."""

    def __init__(self) -> None:
        self._rejected: set[Edit] = set()
        self._unclear: set[Edit] = set()
        self._has_skipped = False
        self._lines: list[str] = []

    def begin_pass(self, text: str) -> None:
        """Set the program that the next edits change."""
        self._lines = text.splitlines()

    def shows_failure(self, text: str, ask: Callable[[], bool | None]) -> bool:
        """Return True when an edit of the program still shows the failure.

        The edited program then takes the place of the program. ``ask`` returns True if it fails in
        the same way, and False if it does not fail. None is any other answer, which is asked for
        again after :meth:`forget_unclear`.
        """
        lines = text.splitlines()
        edit = _edit_between(self._lines, lines)
        if edit in self._rejected:
            return False
        if edit in self._unclear:
            self._has_skipped = True
            return False
        answer = ask()
        if answer:
            self._lines = lines
        else:
            (self._rejected if answer is False else self._unclear).add(edit)
        return bool(answer)

    def forget_unclear(self) -> bool:
        """Forget the edits after which the program failed in a different way. Return whether one of
        them was skipped since the last call.
        """
        has_skipped, self._has_skipped = self._has_skipped, False
        self._unclear.clear()
        return has_skipped


def _edit_between(old: list[str], new: list[str]) -> Edit:
    """Return the lines that differ. Of several equal lines, the number says which one it is."""
    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    removed, added = old[first : len(old) - last], new[first : len(new) - last]
    changed = removed[0] if removed else old[first - 1] if first else ""
    return old[:first].count(changed), tuple(removed), tuple(added)
