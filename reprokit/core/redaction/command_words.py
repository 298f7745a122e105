"""Command lines as lists of words: which words hold secrets, and how they are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from reprokit.core.redaction.rules import secret_names

MAX_COMMAND_WORDS, MAX_COMMAND_CHARS = 300, 20_000


def is_command(value: Sequence[Any]) -> bool:
    """Return whether a list looks like a command line: a program without white space, and a
    flag.
    """
    return (
        2 <= len(value) <= MAX_COMMAND_WORDS
        and all(isinstance(word, str) for word in value)
        and re.fullmatch(r"[\w./+-]+", value[0]) is not None
        and any(word.startswith("-") for word in value)
        and sum(map(len, value)) <= MAX_COMMAND_CHARS
    )


def is_secret_flag(word: str) -> bool:
    """Return whether a word of a command line is a flag whose next word is a secret."""
    name = word.lstrip("-")
    return (
        word.startswith("-")
        and len(name) > 2
        and secret_names.is_secret(name)
        and not secret_names.asks_for_secret(name)
    )


def command_text(argv: Sequence[str]) -> str:
    """Join the words of a command line, and hide secret words. After joining, the boundaries that
    identify them are lost.
    """
    return " ".join(visible_words(argv))


def visible_words(argv: Sequence[str]) -> list[str]:
    """Return the words of a command line, with ``<hidden>`` in place of the values of secret
    options.
    """
    words: list[str] = []
    for before, word in zip([None, *argv], argv, strict=False):
        name, equals, _ = word.partition("=")
        if before is not None and is_secret_flag(before) and not word.startswith("--"):
            words.append("<hidden>")
        elif equals and is_secret_flag(name):
            words.append(f"{name}=<hidden>")
        else:
            words.append(word)
    return words
