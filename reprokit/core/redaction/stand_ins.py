"""Harmless text of the same form as a secret, for a program that must still run.

A placeholder such as ``<ip-1>`` is not an address, so a program that parses its text fails in a
different way with it. A stand-in has the length and the kinds of characters of the secret, and is
recognised by its form, so that a program with stand-ins is not changed when it is redacted again.
"""

from __future__ import annotations

import re

from reprokit.core.redaction.rules.token_formats import FORMATS

_STAND_IN = re.compile(
    r"192\.0\.2\.\d{1,3}"  # RFC 5737
    r"|2001:db8::[0-9a-f]{1,4}"  # RFC 3849
    r"|[abc0-2]{16,}"  # of a hexadecimal number
    r"|02:00:00:00:00:[0-9a-f]{2}"
    r"|person\d{1,3}@example\.com|machine-\d{1,3}\.example|(?:/home/)?person\d{1,3}"
    r"|(?:[A-Za-z][A-Za-z0-9]{0,8}[-_])?(?=(?:[^xyz]*[xyz]){3})[^A-Za-z0-9]*(?:[xyz0-2][^A-Za-z0-9]*)+"
    r"|[^A-Za-z0-9]*(?=[^A-Za-z]{4})(?:8[^A-Za-z0-9]*)*(?:9[^A-Za-z0-9]*)+",
    re.IGNORECASE,
)
_HEXADECIMAL = re.compile(r"[0-9a-f]{16,}|[0-9A-F]{16,}")
_PREFIXES = tuple(
    hint for row in FORMATS for hint in row.hints if len(hint) > 2 and hint.endswith(("_", "-"))
)
"""The prefixes of tokens, such as ``hf_`` and ``sk-``; they are no secrets."""


def is_stand_in(text: str) -> bool:
    """Return whether a text is a stand-in."""
    return len(text) <= 10_000 and _STAND_IN.fullmatch(text) is not None


def make_stand_in(kind: str, secret: str, number: int) -> str:
    """Return the stand-in of secret ``number`` of a kind of placeholder.

    Equal secrets have equal numbers, and so equal stand-ins.
    """
    number = max(1, number % 256)
    fixed = {
        "ip": f"2001:db8::{number:x}" if ":" in secret else f"192.0.2.{number}",
        "mac": f"02:00:00:00:00:{number:02x}",
        "email": f"person{number}@example.com",
        "host": f"machine-{number}.example",
        "user": f"person{number}",
        "home": "/home/person1",
    }
    return fixed.get(kind) or _of_same_form(secret, number)


def _of_same_form(secret: str, number: int) -> str:
    """Return ``secret`` with other letters and digits; the first of them tell its number."""
    prefix = next((prefix for prefix in _PREFIXES if secret.startswith(prefix)), "")
    begin = len(prefix) if len(secret) - len(prefix) >= 8 else 0
    characters = list(secret[:begin])
    if not any(map(str.isalpha, secret)):  # few digits would often be those of a real secret
        eights = number % max(1, sum(map(str.isdigit, secret)))
        for c in secret:
            characters.append(("8" if eights > 0 else "9") if c.isdigit() else c)
            eights -= c.isdigit()
        return "".join(characters)
    letters = "abc" if _HEXADECIMAL.fullmatch(secret) else "xyz"
    for c in secret[begin:]:
        if not c.isalnum():
            characters.append(c if c.isascii() else "-")
            continue
        digit, number = number % 3, number // 3
        sign = "012"[digit] if c.isdigit() else letters[digit]
        characters.append(sign.upper() if c.isupper() else sign)
    return "".join(characters)
