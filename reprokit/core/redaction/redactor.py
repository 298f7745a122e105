"""Hide private text; :mod:`redact_rules` finds it.

A :class:`Redactor` replaces each secret by a placeholder with its kind and a number
(``<token-1>``). The same secret has the same placeholder everywhere. Text that helps to diagnose a
bug (torch paths, kernel names, hashes of commits, versions) does not change. The tests check both.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import json
import re
from collections.abc import Sequence
from typing import Any

from reprokit.core.redaction import escapes, python_source
from reprokit.core.redaction.draft import TextDraft
from reprokit.core.redaction.rules import not_private, secret_names, table
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.redaction.rules.secret_places import Span
from reprokit.core.redaction.rules.secret_values import is_name_of_layer, is_own_name

ALLOWED_VARIABLES = re.compile(
    r"(?:TORCH|TRITON|CUDA|NCCL|GLOO|INDUCTOR|AOT|PYTORCH|OMP|MKL|KMP|GOMP|ROCR|HIP|HSA|AMD|NVIDIA|UCX|XLA)[A-Z0-9_]*"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|LD_PRELOAD|LD_LIBRARY_PATH|PYTHONPATH|PYTHONHASHSEED|LANG|LC_ALL|CONDA_DEFAULT_ENV"
)
"""Environment variables that may enter a pack, by full match. No other does."""

_OF_A_COMPILER = re.compile(r"[a-z]+(?:[_.-][a-z]+)*")
_PEOPLE = frozenset("user username login host email account User Username Login Host".split())
"""A ``pass`` beside one of these keys is a password; alone, it may be a pass of a compiler."""
MOST_LEARNED = 500
REMEMBERED, REMEMBERED_CHARS = 50_000, 200
"""Short texts come again and again, as keys and states do; equal ones are hidden alike."""


class Redactor:
    """Hides private text; one instance for one pack, so that equal secrets get equal
    placeholders.
    """

    def __init__(self, private: PrivateNames | None = None) -> None:
        self._numbers: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._rules = table.make_rules(private or PrivateNames())
        self._known: dict[str, str] = {}
        self._learned: list[str] = []
        """Values that a place shows to be secrets, and that do not occur by chance; hidden in all
        later text.
        """

    def text(self, text: str) -> str:
        """Give ``text`` without what is private; giving the result again changes nothing."""
        if (known := self._known.get(text)) is not None:
            return known
        found = self._redacted(text)
        if len(text) <= REMEMBERED_CHARS and len(self._known) < REMEMBERED:
            self._known[text] = found
        return found

    def _redacted(self, text: str) -> str:
        pieces: list[str] = []
        done = 0
        for start, end, placeholder in self._edits(text):
            pieces += (text[done:start], placeholder)
            done = end
        return "".join((*pieces, text[done:]))

    def _edits(self, text: str, guesses: bool = True) -> list[Span]:
        """The spans of private text in ``text``, in order and without overlaps, and the placeholder
        of each.
        """
        read = escapes.plain_text(text)
        draft = TextDraft(read.text)
        lowered = table.lower_text(draft.text)
        for rule in self._rules:
            if (guesses or not rule.is_guess) and (
                not rule.hints or any(hint in lowered for hint in rule.hints)
            ):
                spans = [
                    (start, end, self._placeholder(kind, draft.text[start:end]))
                    for start, end, kind in rule.find(draft.text, lowered)
                ]
                if spans:
                    draft.replace(spans)
                    lowered = table.lower_text(draft.text)
        self._hide_learned(draft)
        edits: list[Span] = []
        done = 0
        for start, end, placeholder in draft.edits:
            begin, stop = read.span(start, end)
            if begin >= done:
                edits.append((begin, stop, placeholder))
                done = stop
        return edits

    def _hide_learned(self, draft: TextDraft) -> None:
        """Replace the learned values at places where no rule found them."""
        for secret in self._learned:
            places = (
                [found.start() for found in re.finditer(re.escape(secret), draft.text)]
                if secret in draft.text
                else []
            )
            if places:
                draft.replace(
                    [
                        (place, place + len(secret), self._placeholder("token", secret))
                        for place in places
                    ]
                )

    def python(self, text: str) -> str:
        """Redact a program so that it stays the same program; a text that is not Python is redacted
        as text.
        """
        try:
            return python_source.redact_python(
                text, functools.partial(self._edits, guesses=False), self._given
            )
        except ValueError:
            return self.text(text)

    def _given(self, name: str, value: str) -> str:
        """The replacement of a value that a program assigns to a name; names stay: ``key_field =
        "db_key"``.
        """
        sure = secret_names.sureness(name)
        is_name = (value.isidentifier() and secret_names.sureness(value)) or is_name_of_layer(
            name, value
        )
        is_name = is_name or is_own_name(name, value)
        if (
            not sure
            or is_name
            or (sure != secret_names.PASSWORD and not table.is_secret_entry(name, value))
        ):
            return value
        return self._secret(sure, name, value)

    def value(self, value: Any) -> Any:
        """Redact every text inside a record or JSON value and give the same kind of value back.

        Structure tells more than text: the value of a key like ``HF_TOKEN`` and the word after
        ``--api-key`` are hidden whatever they look like.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            before = [None, *value]
            hidden = [self._after(b, v, len(value)) for b, v in zip(before, value, strict=False)]
            return type(value)(self._command(value, hidden) if _is_command(value) else hidden)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: self.value(getattr(value, f.name)) for f in dataclasses.fields(value)}
            return dataclasses.replace(value, **fields)
        return value

    def _command(self, words: Sequence[str], hidden: list[Any]) -> list[Any]:
        """Redact the words of a command line, where a flag or a program shows that another word is
        a secret.
        """
        start, place = [0], 0
        for word in words:
            place += len(word) + 1
            start.append(place)
        for begin, end, placeholder in self._edits(" ".join(words)):
            number = bisect.bisect_right(start, begin) - 1
            if end < start[number + 1] and hidden[number] == words[number]:
                word, first = words[number], start[number]
                hidden[number] = word[: begin - first] + placeholder + word[end - first :]
        return hidden

    def file_name(self, name: str) -> str:
        """Redact the name of a file, part by part; the result is a valid name."""
        return "/".join(self._part(part) for part in name.split("/"))

    def _part(self, part: str) -> str:
        hidden = self.text(part)
        for found in _NAMED_PART.finditer(hidden):
            if secret_names.sureness(found["name"]) and secret_names.looks_random(found["secret"]):
                hidden = hidden.replace(
                    found["secret"], self._placeholder("token", found["secret"])
                )
        return re.sub(r"[<>]+", "-", hidden).strip("-") if hidden != part else part

    def json_lines(self, text: str) -> str:
        """Redact a journal: each line that is JSON by its structure, any other as text."""
        return "\n".join(
            self._json(line, None) if line.startswith(("{", "[")) else self.text(line)
            for line in text.split("\n")
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
        return json.dumps(
            self.value(value), indent=indent, ensure_ascii=False, separators=separators
        )

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        named = next(
            (value[k] for k in ("name", "key", "Name", "Key") if isinstance(value.get(k), str)), ""
        )
        found = {}
        for key, one in value.items():
            owner = (
                named
                if named and str(key).lower() in ("value", "val", "content", "default")
                else key
            )
            if key in ("packages", "versions") and isinstance(one, dict):
                found[key] = {
                    self.text(str(n)): v if not_private.is_version(v) else self.value(v)
                    for n, v in one.items()
                }
                continue
            is_pass = (
                key == "pass"
                and isinstance(one, str)
                and _OF_A_COMPILER.fullmatch(one)
                and _PEOPLE.isdisjoint(value)
            )
            found[self.text(key) if isinstance(key, str) else key] = (
                one if is_pass else self._value_of(owner, one)
            )
        return found

    def _value_of(self, key: Any, value: Any) -> Any:
        if str(key).lower().endswith("version") and not_private.is_version(value):
            return value
        sure = (
            secret_names.sureness(key)
            if isinstance(key, str) and not isinstance(value, bool)
            else ""
        )
        if not sure:
            return self.value(value)
        if isinstance(value, dict):
            return self._inside(sure, key, value)
        if isinstance(value, str):
            return self._secret(sure, key, value)
        if isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value):
            is_tokens = sure == secret_names.KEY
            return type(value)(
                self.value(v)
                if is_tokens and not secret_names.is_unmistakable(v)
                else self._secret(secret_names.PASSWORD if is_tokens else sure, key, v)
                for v in value
            )
        if sure == secret_names.PASSWORD and isinstance(value, (int, float)) and abs(value) >= 1000:
            return self._placeholder("token", str(value))
        return self.value(value)

    def _inside(self, sure: str, name: str, value: dict[Any, Any]) -> dict[Any, Any]:
        """A mapping under a name that holds secrets: ``"password": {"value": "..."}``,
        ``"credentials": {"db": "..."}``.
        """
        found: dict[Any, Any] = {}
        for key, one in self._mapping(value).items():
            is_value = str(key).lower() in (
                "value",
                "val",
                "content",
                "default",
                "data",
                "$string",
                "stringvalue",
            )
            if isinstance(one, str) and (
                is_value or (sure == secret_names.PASSWORD and secret_names.looks_secret(one))
            ):
                found[key] = self._secret(sure, name, one)
            elif isinstance(one, dict) and sure == secret_names.PASSWORD:
                found[key] = self._inside(sure, name, one)
            else:
                found[key] = one
        return found

    def _secret(self, sure: str, name: str, value: str) -> str:
        """Redact the value of a key that may hold a secret."""
        is_number = sure == secret_names.PASSWORD and secret_names.is_number(value)
        if len(value) < 4 or (not_private.is_setting_value(value) and not is_number):
            return value
        if sure == secret_names.KEY and not (table.is_secret_entry(name, value)):
            return self.text(value)
        if sure == secret_names.TOKEN and " " in value.strip() and ":" in value:
            return self.text(value)
        if name in ("PWD", "OLDPWD", "pwd") and value.startswith(("/", "~", ".")):
            return self.text(value)
        return self._placeholder("token", value)

    def _after(self, before: Any, value: Any, count: int) -> Any:
        if isinstance(before, str) and isinstance(value, str) and len(value) >= 4:
            is_flag = is_secret_flag(before) and not value.startswith("--")
            is_row = (
                count == 2
                and not before.startswith("-")
                and secret_names.is_secret(before)
                and " " not in before
            )
            if is_flag or is_row:
                return self._secret(secret_names.PASSWORD, before, value)
        return self.value(value)

    def _placeholder(self, kind: str, secret: str) -> str:
        if kind == "home":
            return "<home>"
        if table.PLACEHOLDER.fullmatch(secret):
            return secret
        key = (kind, secret.lower() if kind in ("user", "host", "email") else secret)
        if key not in self._numbers:
            if (
                kind == "token"
                and len(self._learned) < MOST_LEARNED
                and secret_names.is_unmistakable(secret)
            ):
                self._learned.append(secret)
                self._known.clear()
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[key] = f"<{kind}-{self._counts[kind]}>"
        return self._numbers[key]


_NAMED_PART = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z_-]{2,40}?)[-_=](?P<secret>[A-Za-z0-9]{16,})(?![A-Za-z0-9])"
)
MOST_WORDS, MOST_COMMAND_CHARS = 300, 20_000


def _is_command(value: Sequence[Any]) -> bool:
    """Whether a list reads as a command line: a program without white space, and a flag."""
    return (
        2 <= len(value) <= MOST_WORDS
        and all(isinstance(word, str) for word in value)
        and re.fullmatch(r"[\w./+-]+", value[0]) is not None
        and any(word.startswith("-") for word in value)
        and sum(map(len, value)) <= MOST_COMMAND_CHARS
    )


def is_secret_flag(word: str) -> bool:
    """Whether a word of a command line is a flag whose next word is a secret."""
    name = word.lstrip("-")
    return (
        word.startswith("-")
        and len(name) > 2
        and secret_names.is_secret(name)
        and not secret_names.asks_for_secret(name)
    )


def command_text(argv: Sequence[str]) -> str:
    """A command line as one text: joined, it would lose the structure that shows which words are
    secret.
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
    return " ".join(words)
