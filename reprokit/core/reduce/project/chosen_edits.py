"""Edits of a program that do not depend on each other, of which as many as possible are kept."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from reprokit.core.reduce.ast_edits import (
    NO_PROGRAM,
    Path,
    Test,
    copy_tree,
    node_at,
    replace_node,
    text_of,
)


@dataclass(frozen=True)
class Edit:
    """A change of one node."""

    path: Path
    new: ast.stmt | ast.expr | None = None
    """What is there instead; None for nothing."""
    kept: str = ""
    """The field of the old node whose statements stay: at the end of the body of ``new``, or in
    place of the node.
    """

    def is_in(self, others: Sequence[Edit]) -> bool:
        """Return whether one of the other edits removes the node of this one."""
        return any(other._removes(self.path) for other in others)

    def is_done(self, others: Sequence[Edit]) -> bool:
        """Return whether one of the other edits changes or removes the node of this one."""
        return any(other.path == self.path for other in others) or self.is_in(others)

    def _removes(self, path: Path) -> bool:
        rest = path[len(self.path) :]
        is_below = bool(rest) and path[: len(self.path)] == self.path
        return is_below and rest[0][0] != (self.kept or None)


class ChosenEdits:
    """The edits of a program that are kept so far."""

    def __init__(self, tree: ast.Module, test: Test) -> None:
        """``test`` is a predicate on the text with the edits."""
        self._tree, self._test = tree, test
        self.edits: list[Edit] = []
        self.text = ""
        """The program with the edits; empty if there are none."""

    def add_most(self, edits: Sequence[Edit], smallest: int = 1) -> None:
        """Keep all of the edits, or those of each half that can be kept; of ``smallest`` edits or
        fewer, all or none.
        """
        if not edits:
            return
        new = self._applied([*self.edits, *edits])
        if new and self._test(new):
            self.edits += edits
            self.text = new
        elif len(edits) > smallest:
            self.add_most(edits[: len(edits) // 2], smallest)
            self.add_most(edits[len(edits) // 2 :], smallest)

    def _applied(self, edits: Sequence[Edit]) -> str:
        changed = copy_tree(self._tree)
        try:
            # later and inner places first, so that the other paths stay valid
            for edit in sorted(edits, key=lambda edit: edit.path, reverse=True):
                kept = getattr(node_at(changed, edit.path), edit.kept) if edit.kept else []
                if edit.new is None:
                    replace_node(changed, edit.path, kept)
                    continue
                made = copy_tree(edit.new)
                if kept and isinstance(made, ast.For):
                    made.body += kept
                replace_node(changed, edit.path, [made])
            return text_of(changed)
        except NO_PROGRAM:
            return ""
