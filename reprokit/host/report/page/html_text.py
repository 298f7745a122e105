"""Write text of a target into a page: escaped, cleaned, and with backticks as code."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from reprokit.core.redaction.plain import clean_text

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")


def clean_value(value: object) -> object:
    """Return a text without control and invisible characters, and any other value as it is."""
    is_text = isinstance(value, str) and not isinstance(value, Markup)
    return clean_text(str(value)) if is_text else value


def prose(text: object) -> Markup:
    """Return a sentence, in which text in backticks is code.

    A word with any other backtick is code too, so that no backtick is left in the prose.
    """
    parts: list[Markup] = []
    for place, part in enumerate(_CODE.split(clean_text(str(text)))):
        if place % 2:
            parts.append(_code(part))
        else:
            words = re.split(r"(\s+)", part)
            parts += [_code(word) if "`" in word else escape(word) for word in words]
    return Markup("").join(parts)


def program_text(text: str) -> Markup:
    """Return the text of a program, which is not changed."""
    return escape(text)


def _code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)
