"""How private text is hidden; what it looks like stands in ``redact_rules.py``.

A :class:`Redactor` replaces each secret by a placeholder that names its kind and a number, the same one
wherever the secret stands (``<token-1>``). What diagnoses a bug (torch paths, kernel names, hashes of
commits, versions) is left alone; the tests hold both sides.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from typing import Any

from . import lookalikes, redact_rules
from .redact_rules import Private

SECRET_NAME = re.compile(
    r"TOKEN(?!S|IZ)|SECRET|PASSWO?R?D|PASSPHRASE|CREDENTIAL|COOKIE|APIKEY|CONNECTION_STRING|DATABASE_URL|WEBHOOK"
    r"|(?:^|_)(?:API|ACCESS|PRIVATE|SIGNING|ENCRYPTION|AUTH|LICENSE|SSH|GPG|ACCOUNT)_?KEY|_KEY$|^KEY$|_AUTH$|_PAT$|_PASS$|_PWD$|^SSHPASS$",
    re.IGNORECASE,
)
"""Names of environment variables, and keys of JSON objects, whose values are secrets."""

ALLOWED_VARIABLES = re.compile(
    r"(?:TORCH|TRITON|CUDA|NCCL|GLOO|INDUCTOR|AOT|PYTORCH|OMP|MKL|KMP|GOMP|ROCR|HIP|HSA|AMD|NVIDIA|UCX|XLA)[A-Z0-9_]*"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|LD_PRELOAD|LD_LIBRARY_PATH|PYTHONPATH|PYTHONHASHSEED|LANG|LC_ALL|CONDA_DEFAULT_ENV"
)
"""Environment variables that may enter a pack, by full match. Everything else stays at home."""

# Inside JSON and repr a line break is written as a backslash and a letter, and the letter would glue itself to the
# next word. While the rules run, these stand as separators that count as white space.
_ESCAPES = (("\\n", "\x1c"), ("\\r", "\x1d"), ("\\t", "\x1e"))


REMEMBERED, REMEMBERED_CHARS = 50_000, 200
"""Short texts come again and again, as keys and states do; equal ones are hidden alike."""


class Redactor:
    """Hides private text; one instance for one pack, so that equal secrets get equal placeholders."""

    def __init__(self, private: Private | None = None) -> None:
        self._numbers: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._rules = redact_rules.make(private or Private())
        self._known: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Give ``text`` without what is private; giving the result again changes nothing."""
        if (known := self._known.get(text)) is not None:
            return known
        found = self._redacted(text)
        if len(text) <= REMEMBERED_CHARS and len(self._known) < REMEMBERED:
            self._known[text] = found
        return found

    def _redacted(self, text: str) -> str:
        for escape, stand_in in _ESCAPES:
            text = text.replace(stand_in, " ").replace(escape, stand_in)
        lowered = text.lower()
        for hint, pattern, kind, keep in self._rules:
            if not hint or any(h in lowered for h in hint):
                text = pattern.sub(lambda m, kind=kind, keep=keep: self._replace(m, kind, keep), text)  # type: ignore[misc]
        for escape, stand_in in _ESCAPES:
            text = text.replace(stand_in, escape)
        return text

    def value(self, value: Any) -> Any:
        """Redact every text inside a record or JSON value and give the same kind of value back.

        Structure tells more than text: the value of a key like ``HF_TOKEN`` and the word after ``--api-key`` are
        hidden whatever they look like.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._key(k): self._value_of(k, v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            before = [None, *value]
            return type(value)(self._after(b, v) for b, v in zip(before, value, strict=False))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: self.value(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return dataclasses.replace(value, **fields)
        return value

    def json_lines(self, text: str) -> str:
        """Redact a journal: each line that is JSON by its structure, any other as text."""
        return "\n".join(
            self._json(line, None) if line.startswith(("{", "[")) else self.text(line) for line in text.split("\n")
        )

    def json(self, text: str) -> str:
        """Redact a JSON document by its structure; what does not parse is redacted as text."""
        return self._json(text, 1) + ("\n" if text.endswith("\n") else "")

    def _json(self, text: str, indent: int | None) -> str:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.text(text)
        separators = (",", ":") if indent is None else None
        return json.dumps(self.value(value), indent=indent, ensure_ascii=False, separators=separators)

    def _key(self, key: Any) -> Any:
        return self.text(key) if isinstance(key, str) else key

    def _value_of(self, key: Any, value: Any) -> Any:
        if isinstance(key, str) and isinstance(value, str) and SECRET_NAME.search(key) and len(value) >= 4:
            return value if lookalikes.is_setting_value(value) else self._placeholder("token", value)
        return self.value(value)

    def _after(self, before: Any, value: Any) -> Any:
        if (
            isinstance(before, str)
            and isinstance(value, str)
            and len(value) >= 4
            and redact_rules.FLAG.fullmatch(before)
        ):
            return value if value.startswith("-") else self._placeholder("token", value)
        return self.value(value)

    def _replace(self, found: re.Match[str], kind: str, keep: redact_rules.Keep | None) -> str:
        if keep is not None and keep(found):
            return found.group(0)
        start, end = found.span("secret")
        whole = found.group(0)
        head, tail = whole[: start - found.start()], whole[end - found.start() :]
        return f"{head}{self._placeholder(kind, found.group('secret'))}{tail}"

    def _placeholder(self, kind: str, secret: str) -> str:
        if kind == "home":
            return "<home>"
        if redact_rules.PLACEHOLDER.fullmatch(secret):
            return secret
        key = (kind, secret.lower() if kind in ("user", "host", "email") else secret)
        if key not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[key] = f"<{kind}-{self._counts[kind]}>"
        return self._numbers[key]


def command_text(argv: Sequence[str]) -> str:
    """A command line as one text: joined, it would lose the structure that shows which words are secret."""
    words: list[str] = []
    for before, word in zip([None, *argv], argv, strict=False):
        name, equals, _ = word.partition("=")
        if before is not None and redact_rules.FLAG.fullmatch(before) and not word.startswith("-"):
            words.append("<hidden>")
        elif equals and redact_rules.FLAG.fullmatch(name):
            words.append(f"{name}=<hidden>")
        else:
            words.append(word)
    return " ".join(words)
