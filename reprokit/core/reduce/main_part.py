"""Split a program into what is executed once, and what a function can run again: its main part."""

from __future__ import annotations

import ast
import symtable
from dataclasses import dataclass

from reprokit.core.reduce import ast_edits


@dataclass
class Parts:
    """The statements of a program in two parts, each in its order."""

    head: list[ast.stmt]
    """Imports, definitions and settings of torch, and what a later definition reads when it is
    executed.
    """
    main: list[ast.stmt]

    def shared(self) -> list[str]:
        """Return the names that the main part assigns and a definition reads, which a function with
        the main part must declare ``global``.
        """
        defined = (n for n in self.head if stays(n))
        return sorted(
            set[str]().union(*map(free_names, defined)) & set[str]().union(*map(gives, self.main))
        )


def split_program(tree: ast.Module) -> Parts:
    """Return the two parts of a program; the nodes are those of ``tree``."""
    read = set[str]().union(*(free_names(n) for n in tree.body if stays(n)))
    # what a later definition may read when it is executed is assigned once
    last = max((i for i, n in enumerate(tree.body) if _is_executed(n)), default=-1)
    head = [n for i, n in enumerate(tree.body) if stays(n) or (i < last and gives(n) & read)]
    return Parts(head, [n for n in tree.body if n not in head])


def gives(node: ast.stmt) -> set[str]:
    """Return the names that a statement assigns."""
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def free_names(node: ast.stmt) -> set[str]:
    """Return the names that a definition reads outside of itself, in any of its functions."""
    found, tables = set(), [symtable.symtable(ast.unparse(node), "program", "exec")]
    for table in tables:
        tables += table.get_children()
        is_outermost = table is tables[0]
        found |= {
            one.get_name()
            for one in table.get_symbols()
            if one.is_referenced() and (not one.is_assigned() if is_outermost else one.is_global())
        }
    return found


def stays(node: ast.stmt) -> bool:
    """Return whether a statement is not part of a run: a definition, an import or a setting."""
    if ast_edits.is_definition(node):
        return True
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
        return ast.unparse(node.targets[0]).startswith("torch.")
    return isinstance(node, ast.Expr) and "torch.set_default" in ast.unparse(node)


def _is_executed(node: ast.stmt) -> bool:
    """Return whether a definition calls or reads something when it is executed."""
    if isinstance(node, ast.FunctionDef):
        return bool(node.decorator_list or node.args.defaults)
    return isinstance(node, ast.ClassDef) and (
        bool(node.decorator_list or node.keywords)
        or any(not isinstance(row, (ast.FunctionDef, ast.Pass)) for row in node.body)
    )
