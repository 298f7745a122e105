"""Redact a Python program so that it stays the same program: only strings and comments change,
never a name.

The rules of :mod:`.rules` read a program as text, and text that looks private may be code:
``x@layer.weight`` is not an address, and ``password = features['secret']`` contains no password. So
a match of the rules is hidden only if it is inside one string or comment. A string that the syntax
tree assigns to a name that holds secrets is hidden too, even if line breaks and parentheses are
between the two.
"""

from __future__ import annotations

import ast
import bisect
import re
import token
import tokenize
from collections.abc import Callable, Iterator

from reprokit.core.redaction.rules import secret_names

Edit = tuple[int, int, str]
"""Start and end in a text, and the replacement."""
_STRING = re.compile(r"([A-Za-z]{0,3})('''|\"\"\"|'|\")")
_OPENS = frozenset((getattr(token, "FSTRING_START", -1), getattr(token, "TSTRING_START", -1)))
_CLOSES = frozenset((getattr(token, "FSTRING_END", -1), getattr(token, "TSTRING_END", -1)))
_UNREADABLE = (tokenize.TokenError, SyntaxError, ValueError, RecursionError, MemoryError)


class PythonSource:
    """A program, and the positions of its strings and comments; raises ValueError for a text that
    is not Python.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = [0]
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)
        for line in lines:
            self._lines.append(self._lines[-1] + len(line))
        self.skeleton: list[str] = []
        """All tokens except strings and comments."""
        self.parts: list[tuple[int, int]] = []
        """Start and end of the contents of each string or comment, in order; fields of f-strings
        are not included.
        """
        try:
            for start, end in self._tokens(lines):
                self._add(start, end)
        except _UNREADABLE as problem:
            raise ValueError(f"it is not Python: {problem}") from problem

    def _tokens(self, lines: list[str]) -> Iterator[tuple[int, int]]:
        """Find each string and comment; all other tokens become the skeleton."""
        depth = begun = 0
        left = iter(lines)
        for item in tokenize.generate_tokens(lambda: next(left, "")):
            start, end = self._position(*item.start), self._position(*item.end)
            if item.type in _OPENS:
                begun = begun if depth else start
                depth += 1
            elif item.type in _CLOSES:
                depth -= 1
                if not depth:
                    yield begun, end
            elif not depth and item.type in (token.STRING, tokenize.COMMENT):
                yield start, end
            elif not depth:
                self.skeleton.append(item.string)

    def _add(self, start: int, end: int) -> None:
        opening = _STRING.match(self.text, start, end)
        if opening is None:  # a comment
            self.parts.append((start + 1, end))
            return
        begin, stop = opening.end(), end - len(opening.group(2))
        if not {"f", "t"} & set(opening.group(1).lower()):
            self.skeleton.append(opening.group(1))
            self.parts.append((begin, stop))
            return
        for first, last, is_field in _pieces(self.text, begin, stop):
            if not is_field:
                self.parts.append((first, last))
                continue
            expression = PythonSource(f"({self.text[first:last]})")
            self.skeleton += expression.skeleton
            self.parts += [(first + a - 1, first + b - 1) for a, b in expression.parts]

    def _position(self, row: int, column: int) -> int:
        return self._lines[min(row, len(self._lines)) - 1] + column

    def _parts_between(self, start: int, end: int) -> list[tuple[int, int]]:
        first = bisect.bisect_left(self.parts, (start, 0))
        return [
            p for p in self.parts[first : bisect.bisect_left(self.parts, (end, 0))] if p[1] <= end
        ]

    def named_parts(self) -> Iterator[tuple[str, int, int]]:
        """Yield each part that is assigned to a name, compared with it or stored under it, after
        the name.
        """
        try:
            tree = ast.parse(self.text)
        except _UNREADABLE:
            return
        lines = self.text.split("\n")
        for node in ast.walk(tree):
            for target, value in _pairs(node):
                name = _name(target)
                for text in _texts(value) if name else ():
                    start = self._of_node(lines, text.lineno, text.col_offset)
                    end = self._of_node(lines, text.end_lineno or 0, text.end_col_offset or 0)
                    yield from ((name, *part) for part in self._parts_between(start, end))

    def _of_node(self, lines: list[str], row: int, column: int) -> int:
        line = lines[row - 1]
        if not line.isascii():  # the syntax tree counts bytes
            column = len(
                line.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "surrogatepass")
            )
        return self._position(row, column)


def redact_python(
    text: str, find: Callable[[str], list[Edit]], hide: Callable[[str, str], str]
) -> str:
    """Return the program without private text; raises ValueError if the text, or the result, is not
    Python.

    ``find`` returns the spans of private text in a text. ``hide`` takes a name and a string that is
    assigned to it, and returns the replacement of the string.
    """
    private = find(text)
    has_names = secret_names.WORD.search(text.lower()) is not None
    if not private and not has_names:
        return text
    source = PythonSource(text)
    edits: dict[tuple[int, int], list[Edit]] = {}
    for start, end, placeholder in private:
        for part in _touched(source.parts, start, end):
            kept = edits.setdefault(part, [])
            if part[0] <= start and end <= part[1]:
                kept.append((start, end, placeholder))
    for part, kept in edits.items():
        for start, end, placeholder in find(text[slice(*part)]):
            edit = (part[0] + start, part[0] + end, placeholder)
            if all(edit[1] <= k[0] or k[1] <= edit[0] for k in kept):
                kept.append(edit)
    if has_names:
        for name, start, end in source.named_parts():
            value = text[start:end]
            hidden = hide(name, value)
            if hidden != value and not edits.get((start, end)):
                edits[start, end] = [(start, end, hidden)]
    edits = {part: kept for part, kept in edits.items() if kept}
    if not edits:
        return text
    changed = _apply(text, sorted(e for kept in edits.values() for e in kept))
    if not _is_same(source, changed):  # half of an escape sequence was hidden
        changed = _apply(text, sorted((*part, kept[0][2]) for part, kept in edits.items()))
        if not _is_same(source, changed):
            raise ValueError("it would be a different program")
    return changed


def _touched(parts: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    first = max(0, bisect.bisect_right(parts, (start, 1 << 62)) - 1)
    touched = []
    for part in parts[first:]:
        if part[0] >= end:
            break
        if part[1] > start:
            touched.append(part)
    return touched


def _apply(text: str, edits: list[Edit]) -> str:
    pieces: list[str] = []
    done = 0
    for start, end, placeholder in edits:
        if start >= done:
            pieces += (text[done:start], placeholder)
            done = end
    return "".join((*pieces, text[done:]))


def _is_same(source: PythonSource, changed: str) -> bool:
    """Return whether a text has the same tokens, except for the contents of strings and
    comments.
    """
    try:
        return PythonSource(changed).skeleton == source.skeleton
    except ValueError:
        return False


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Yield the constant parts of an f-string and the expressions of its fields, without braces and
    formats; the third value is True for an expression.
    """
    position = begun = start
    while position < end:
        if text.startswith(("{{", "}}"), position):
            position += 2
        elif text[position] != "{":
            position += 1
        else:
            if position > begun:
                yield begun, position, False
            expression, position = _field(text, position + 1, end)
            yield (*expression, True)
            begun = position
    if end > begun:
        yield begun, end, False


def _field(text: str, start: int, end: int) -> tuple[tuple[int, int], int]:
    """Return the start and end of the expression of a field, and the end of the field."""
    depth, position, stop = 0, start, -1
    while position < end:
        char = text[position]
        if quote := _STRING.match(text, position, end) if char in "'\"" and stop < 0 else None:
            close = text.find(quote.group(2), quote.end(), end)
            position = close + len(quote.group(2)) if close >= 0 else end
            continue
        if char in "([{":
            depth += 1
        elif char in ")]" or (char == "}" and depth):
            depth -= 1
        elif char == "}":
            return (start, position if stop < 0 else stop), position + 1
        elif not depth and stop < 0:
            is_format = char == ":" or (char == "!" and not text.startswith("!=", position))
            is_shown = (
                char == "="
                and text[position + 1 : position + 2] in ("}", ":", "!")
                and text[position - 1] not in "=!<>"
            )
            if is_format or is_shown:
                stop = position
        position += 1
    raise ValueError("a field of an f-string does not end")


def _pairs(node: ast.AST) -> Iterator[tuple[ast.AST | str | None, ast.AST | None]]:
    """Yield expressions that may be names, each with an expression that is assigned to it."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, (ast.Tuple, ast.List)) and isinstance(
                node.value, (ast.Tuple, ast.List)
            ):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr, ast.AugAssign)):
        yield node.target, node.value
    elif isinstance(node, ast.Call):
        yield from _arguments(node)
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        returns = (child for child in ast.walk(node) if isinstance(child, ast.Return))
        yield from ((node.name, child.value) for child in returns)
    elif isinstance(node, ast.keyword):
        yield node.arg, node.value
    elif isinstance(node, ast.Dict):
        yield from zip(node.keys, node.values, strict=True)
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        names = [side for side in sides if not isinstance(side, ast.Constant)]
        yield from ((name, side) for name in names for side in sides)
    elif isinstance(node, ast.arguments):
        parameters = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
        yield from ((a.arg, d) for a, d in zip(parameters, node.defaults, strict=True))
        yield from ((a.arg, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True))


_SLOT = re.compile(r"([A-Za-z_][\w-]*)[\"']?\s*[=: ]\s*[\"']?(?:%[srd]|\{\w*\})")


def _arguments(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names and values in calls such as ``add_argument("--password", default="...")`` and
    ``info("password=%s", "...")``.
    """
    first = node.args[0] if node.args else None
    if isinstance(first, ast.Constant) and isinstance(first.value, str):
        yield from (
            (first.value, keyword.value)
            for keyword in node.keywords
            if keyword.arg in ("default", "value", "initial")
        )
        yield from zip(_SLOT.findall(first.value), node.args[1:], strict=False)
    if (
        isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Constant)
        and node.func.attr == "format"
    ):
        yield from zip(_SLOT.findall(str(node.func.value.value)), node.args, strict=False)


def _texts(value: ast.AST | None) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield the strings that may be the value of an expression."""
    if isinstance(value, ast.Constant):
        if isinstance(value.value, (str, bytes)):
            yield value
    elif isinstance(value, ast.JoinedStr):
        yield value
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        yield from (*_texts(value.left), *_texts(value.right))
    elif isinstance(value, ast.BoolOp):
        yield from (text for side in value.values for text in _texts(side))
    elif isinstance(value, ast.IfExp):
        yield from (*_texts(value.body), *_texts(value.orelse))
    elif isinstance(value, ast.Call):
        yield from (
            text
            for keyword in value.keywords
            if keyword.arg in ("default", "value")
            for text in _texts(keyword.value)
        )


def _name(target: ast.AST | str | None) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, ast.Name):
        return target.id
    if isinstance(target, ast.Attribute):
        return target.attr
    if isinstance(target, ast.Subscript):
        return _name(target.slice)
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        return target.value
    return ""
