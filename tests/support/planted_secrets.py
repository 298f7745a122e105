"""Secrets for tests. They are made at run time: none is in this repository, and none is real."""

from __future__ import annotations

import html
import json
import random
import re
import string
import urllib.parse
from collections.abc import Callable, Iterable
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]

from reprokit.core.redaction.rules.token_formats import TokenFormat

LETTERS = string.ascii_letters + string.digits
PRINTABLE = [ord(c) for c in string.ascii_letters + string.digits + " -_."]


def make_example(pattern: str, chance: random.Random, flags: int = 0) -> str:
    """Return a text in which ``pattern`` matches."""
    for _ in range(2_000):
        text = "".join(_parts(_parser.parse(pattern), chance, {}))
        if re.search(pattern, text, flags):
            return text
    raise AssertionError(f"no example of {pattern}")


def make_token(shape: TokenFormat, chance: random.Random) -> tuple[str, str]:
    """Return a token of a row of the tables with the text that must precede it, and the token alone."""
    pattern = f"{shape.before}(?P<secret>{shape.pattern})"
    for _ in range(2_000):
        text = "".join(_parts(_parser.parse(pattern), chance, {}))
        if (found := re.fullmatch(pattern, text)) is not None:
            is_near = any(
                hint in (text if shape.is_exact else text.lower()) for hint in shape.hints
            )
            return text if is_near else f"{shape.hints[0]} {text}", found["secret"]
    raise AssertionError(f"no example of {shape.name}")


def _parts(
    tree: Iterable[tuple[object, object]], chance: random.Random, groups: dict[int, str]
) -> list[str]:
    texts: list[str] = []
    for op, value in tree:
        texts.append(_text_of(op, value, chance, groups))
    return texts


def _text_of(op: object, value: object, chance: random.Random, groups: dict[int, str]) -> str:
    if op is sre.LITERAL:
        return chr(value)  # type: ignore[arg-type]
    if op is sre.NOT_LITERAL:
        return " " if value != ord(" ") else "y"
    if op is sre.ANY:
        return "x"
    if op is sre.IN:
        codes = _codes(value)
        return chr(chance.choice([c for c in codes if c not in b"\\`"] or codes))
    if op is sre.BRANCH:
        return "".join(_parts(chance.choice(value[1]), chance, groups))  # type: ignore[index]
    if op is sre.SUBPATTERN:
        number, _, _, tree = value  # type: ignore[misc]
        text = "".join(_parts(tree, chance, groups))
        groups[number] = text
        return text
    if op is sre.GROUPREF:
        return groups[value]  # type: ignore[index]
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT):
        least, most, tree = value  # type: ignore[misc]
        count = min(
            int(most), least + chance.choice((0, 1) if op is sre.MIN_REPEAT else (0, 0, 1, 5))
        )
        return "".join("".join(_parts(tree, chance, groups)) for _ in range(count))
    if op in (sre.ASSERT, sre.ASSERT_NOT, sre.AT):
        return ""
    raise AssertionError(f"a pattern uses {op}")


def _codes(items: object) -> list[int]:
    found: list[int] = []
    is_negated = False
    for op, value in items:  # type: ignore[attr-defined]
        if op is sre.NEGATE:
            is_negated = True
        elif op is sre.LITERAL:
            found.append(value)
        elif op is sre.RANGE:
            found += range(value[0], value[1] + 1)
        elif op is sre.CATEGORY:
            found += {
                sre.CATEGORY_DIGIT: [*map(ord, string.digits)],
                sre.CATEGORY_WORD: [*map(ord, LETTERS + "_")],
                sre.CATEGORY_SPACE: [32],
                sre.CATEGORY_NOT_SPACE: [*map(ord, LETTERS)],
            }[value]
    return [c for c in PRINTABLE if c not in found] if is_negated else found


def make_password(chance: random.Random) -> str:
    """Return a password with punctuation that neither a shell nor a URL escapes."""
    body = "".join(chance.choice(LETTERS) for _ in range(12))
    return f"{body[:4]}{chance.choice('!*+~.')}{body[4:]}{chance.choice(string.digits)}"


def parts_of(secret: str, size: int = 8) -> set[str]:
    """Return all parts of a secret of ``size`` characters, or a shorter secret as a whole."""
    return {secret[i : i + size] for i in range(max(1, len(secret) - size + 1))}


def shows_secret(text: str, secret: str) -> bool:
    """Return whether a text shows eight characters of a secret in a row, plain or escaped."""
    plain = urllib.parse.unquote(html.unescape(text))
    plain = re.sub(r"\\+u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), plain)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", plain)
    return any(piece in form for form in (text, plain) for piece in parts_of(secret))


CHANNELS: dict[str, Callable[[str], str]] = {
    "text": lambda t: t,
    "a line of a log": lambda t: "\n".join(
        f"[rank3]: W0101 10:00:00.1 7 x.py:3] {row}" for row in t.split("\n")
    ),
    "JSON": lambda t: json.dumps({"level": "info", "message": f"begin\n{t}\nend"}),
    "JSON in JSON": lambda t: json.dumps({"line": json.dumps({"message": f"begin\n{t}"})}),
    "a repr": lambda t: repr(f"begin\n{t}"),
    "a repr of bytes": lambda t: repr(f"begin\t{t}\r\n".encode()),
    "colours": lambda t: (
        "\x1b[1;32m"
        + t.replace(" ", "\x1b[0m \x1b[34m").replace("=", "\x1b[0m=\x1b[35m")
        + "\x1b[0m"
    ),
    "colours in a repr": lambda t: repr(f"\x1b[31mERROR\x1b[0m \x1b[33m{t}\x1b[0m"),
    "percent-encoding": lambda t: (
        f"https://log.example.org/add?line={urllib.parse.quote(t, safe='')}"
    ),
    "twice percent-encoding": lambda t: (
        f"line={urllib.parse.quote(urllib.parse.quote(t, safe=''), safe='')}"
    ),
    "HTML": lambda t: f"<td>{html.escape(t)}</td>",
    "unicode escapes": lambda t: (
        '"' + "".join(c if c.isalnum() or c in " -_./:" else f"\\u{ord(c):04x}" for c in t) + '"'
    ),
    "an environment with NUL": lambda t: f"LANG=C\0{t}\0TERM=xterm",
    "a progress bar": lambda t: f"\r 3%|#     | 3/99 [00:01<00:40, 2.4it/s, {t}]\r 4%|#",
    "a word before it": lambda t: f"my_{t}",
    "UTF-16": lambda t: t.encode("utf-16-le").decode("latin-1"),
}
"""The forms in which a text reaches a file that is packed."""
