"""Hide the private text that the rules of :mod:`.rules` find.

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
from collections.abc import Iterable, Sequence
from typing import Any

from reprokit.core.redaction import escapes, python_source, stand_ins
from reprokit.core.redaction.command_words import is_command, is_secret_flag
from reprokit.core.redaction.draft import TextDraft
from reprokit.core.redaction.rules import not_private, secret_names, table
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.redaction.rules.rule import Rule
from reprokit.core.redaction.rules.secret_places import Span
from reprokit.core.redaction.rules.secret_values import (
    is_name_of_layer,
    is_own_name,
    is_plain_setting,
)

ALLOWED_VARIABLES = re.compile(
    r"(?:TORCH|TRITON|CUDA|NCCL|GLOO|INDUCTOR|AOT|PYTORCH|OMP|MKL|KMP|GOMP|ROCR|HIP|HSA|AMD|NVIDIA|UCX|XLA)[A-Z0-9_]*"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|CC|CXX|CFLAGS|CXXFLAGS|LDFLAGS|LD_PRELOAD|LD_LIBRARY_PATH|PYTHONPATH|PYTHONHASHSEED|LANG|LC_ALL|CONDA_DEFAULT_ENV"
)
"""The only environment variables that may enter a pack, by full match."""

_COMPILER_PASS = re.compile(r"[a-z]+(?:[_.-][a-z]+)*|torch/(?:\w+/)*\w+\.py:\w+")
"""A pass by its name, or by the function of torch that is at work."""
_PEOPLE = frozenset("user username login host email account User Username Login Host".split())
"""A ``pass`` next to one of these keys is a password; otherwise it may be a pass of a compiler."""
_NAME = re.compile(r"[A-Za-z0-9][\w.:@+-]{4,200}")
MAX_LEARNED_SECRETS = 500
MAX_CACHED_TEXTS, MAX_CACHED_CHARS = 50_000, 200
"""The results for short texts are cached, because texts such as keys and states are frequent."""


class Redactor:
    """Hides private text. Each pack uses one instance, so that equal secrets get equal
    placeholders.
    """

    def __init__(self, private: PrivateNames | None = None) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        self._rules = table.make_rules(private or PrivateNames())
        self._hints = sorted({hint for rule in self._rules for hint in rule.hints})
        self._cache: dict[str, str] = {}
        self._known: set[str] = set()
        self._has_stand_ins = False
        self._learned: list[str] = []
        """Secrets that were recognised by their position and are too random to occur by chance.
        They are hidden in all later text.
        """

    def know_names(self, names: Iterable[str]) -> None:
        """Never hide these names of passes, operators, kernels, models and versions because of how
        they look. The run itself recorded them.
        """
        if new := {name for name in names if _NAME.fullmatch(name)} - self._known:
            self._known |= new
            self._cache.clear()

    def redact_text(self, text: str) -> str:
        """Return ``text`` without private text. Redacting the result again does not change it."""
        if (cached := self._cache.get(text)) is not None:
            return cached
        redacted = self._redacted(text)
        if len(text) <= MAX_CACHED_CHARS and len(self._cache) < MAX_CACHED_TEXTS:
            self._cache[text] = redacted
        return redacted

    def _redacted(self, text: str) -> str:
        pieces: list[str] = []
        done = 0
        for start, end, placeholder in self._edits(text):
            pieces += (text[done:start], placeholder)
            done = end
        return "".join((*pieces, text[done:]))

    def _edits(self, text: str, guesses: bool = True) -> list[Span]:
        """Return the spans of private text in ``text``, in order and without overlaps, with the
        placeholder of each.
        """
        plain = escapes.plain_text(text)
        draft = TextDraft(plain.text)
        hints = draft.searched.present_hints(self._hints)
        without_match: Rule | None = None
        for rule in self._rules:
            may_match = rule is not without_match and (guesses or not rule.is_guess)
            if may_match and (not rule.hints or not hints.isdisjoint(rule.hints)):
                spans = [
                    (start, end, self._placeholder(kind, draft.text[start:end]))
                    for start, end, kind in rule.find_spans(draft.searched)
                    if not (rule.is_by_form and draft.text[start:end] in self._known)
                ]
                without_match = None if spans else rule
                if spans:
                    draft.replace_spans(spans)
                    hints = draft.searched.present_hints(self._hints)
        self._hide_learned(draft)
        edits: list[Span] = []
        done = 0
        for start, end, placeholder in draft.edits:
            begin, stop = plain.original_span(start, end)
            if begin >= done:
                edits.append((begin, stop, placeholder))
                done = stop
        return edits

    def _hide_learned(self, draft: TextDraft) -> None:
        """Replace the learned secrets that no rule found."""
        for secret in draft.searched.possible_hints(self._learned, is_exact=True):
            if secret in draft.text:
                matches = re.finditer(re.escape(secret), draft.text)
                placeholder = self._placeholder("token", secret)
                draft.replace_spans([(*match.span(), placeholder) for match in matches])

    def redact_python(self, text: str, has_stand_ins: bool = False) -> str:
        """Redact a program so that it stays the same program; a text that is not Python is redacted
        as text.

        With ``has_stand_ins``, harmless text of the same form replaces each secret, for a program
        that depends on the form.
        """
        self._has_stand_ins = has_stand_ins
        try:
            return python_source.redact_python(
                text, functools.partial(self._edits, guesses=False), self._assigned
            )
        except ValueError:
            return self.redact_text(text)
        finally:
            self._has_stand_ins = False

    def redacted_programs(self, text: str) -> list[str]:
        """Return the redacted program, and the one with stand-ins if it is different.

        Redaction may change what a program does, so the redacted text is what is proved. Where the
        first text does not fail in the same way, the second one may.
        """
        return list(dict.fromkeys(self.redact_python(text, form) for form in (False, True)))

    def _assigned(self, name: str, value: str) -> str:
        """Return the replacement of a value that a program assigns to a name; a value that is a
        name stays: ``key_field = "db_key"``.
        """
        sure = secret_names.name_sureness(name)
        is_name = (value.isidentifier() and secret_names.name_sureness(value)) or is_name_of_layer(
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

    def redact_value(self, value: Any) -> Any:
        """Redact every text in a record or JSON value, and return a value of the same type.

        The structure identifies more secrets than the text: the value of a key such as
        ``HF_TOKEN`` and the word after ``--api-key`` are hidden whatever they look like.
        """
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            before = [None, *value]
            hidden = [self._after(b, v, len(value)) for b, v in zip(before, value, strict=False)]
            return type(value)(self._command(value, hidden) if is_command(value) else hidden)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [f.name for f in dataclasses.fields(value)]
            fields = {name: self.redact_value(getattr(value, name)) for name in names}
            return dataclasses.replace(value, **fields)
        return value

    def _command(self, words: Sequence[str], hidden: list[Any]) -> list[Any]:
        """Redact the words of a command line, in which a flag or a program shows that a different
        word is a secret.
        """
        start, position = [0], 0
        for word in words:
            position += len(word) + 1
            start.append(position)
        for begin, end, placeholder in self._edits(" ".join(words)):
            number = bisect.bisect_right(start, begin) - 1
            if end < start[number + 1] and hidden[number] == words[number]:
                word, first = words[number], start[number]
                hidden[number] = word[: begin - first] + placeholder + word[end - first :]
        return hidden

    def redact_file_name(self, name: str) -> str:
        """Redact the name of a file, part by part; the result is a valid name."""
        return "/".join(self._part(part) for part in name.split("/"))

    def _part(self, part: str) -> str:
        hidden = self.redact_text(part)
        for match in _NAMED_PART.finditer(hidden):
            if secret_names.name_sureness(match["name"]) and secret_names.looks_random(
                match["secret"]
            ):
                hidden = hidden.replace(
                    match["secret"], self._placeholder("token", match["secret"])
                )
        return re.sub(r"[<>]+", "-", hidden).strip("-") if hidden != part else part

    def redact_json_lines(self, text: str) -> str:
        """Redact a journal: a line of JSON by its structure, and any other line as text."""
        return "\n".join(
            self._json(line, None) if line.startswith(("{", "[")) else self.redact_text(line)
            for line in text.split("\n")
        )

    def redact_json(self, text: str) -> str:
        """Redact a JSON document by its structure; a text that is not JSON is redacted as text."""
        return self._json(text, 1) + ("\n" if text.endswith("\n") else "")

    def _json(self, text: str, indent: int | None) -> str:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self.redact_text(text)
        separators = (",", ":") if indent is None else None
        return json.dumps(
            self.redact_value(value), indent=indent, ensure_ascii=False, separators=separators
        )

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        named = next(
            (value[k] for k in ("name", "key", "Name", "Key") if isinstance(value.get(k), str)), ""
        )
        redacted = {}
        for key, item in value.items():
            owner = (
                named
                if named and str(key).lower() in ("value", "val", "content", "default")
                else key
            )
            if key in ("packages", "versions") and isinstance(item, dict):
                redacted[key] = {
                    self.redact_text(str(n)): v
                    if not_private.is_version(v)
                    else self.redact_value(v)
                    for n, v in item.items()
                }
                continue
            is_pass = (
                key == "pass"
                and isinstance(item, str)
                and _COMPILER_PASS.fullmatch(item)
                and _PEOPLE.isdisjoint(value)
            )
            redacted[self.redact_text(key) if isinstance(key, str) else key] = (
                item if is_pass else self._value_of(owner, item)
            )
        return redacted

    def _value_of(self, key: Any, value: Any) -> Any:
        if str(key).lower().endswith("version") and not_private.is_version(value):
            return value
        sure = (
            secret_names.name_sureness(key)
            if isinstance(key, str) and not isinstance(value, bool)
            else ""
        )
        if not sure:
            return self.redact_value(value)
        if isinstance(value, dict):
            return self._inside(sure, key, value)
        if isinstance(value, str):
            return self._secret(sure, key, value)
        if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            is_tokens = sure == secret_names.KEY
            return type(value)(
                self.redact_value(v)
                if is_tokens and not secret_names.is_unmistakable(v)
                else self._secret(secret_names.PASSWORD if is_tokens else sure, key, v)
                for v in value
            )
        if sure == secret_names.PASSWORD and isinstance(value, (int, float)) and abs(value) >= 1000:
            return self._placeholder("token", str(value))
        return self.redact_value(value)

    def _inside(self, sure: str, name: str, value: dict[Any, Any]) -> dict[Any, Any]:
        """Redact a mapping under a name that holds secrets: ``"password": {"value": "..."}``,
        ``"credentials": {"db": "..."}``.
        """
        redacted: dict[Any, Any] = {}
        for key, item in self._mapping(value).items():
            is_value = str(key).lower() in (
                "value",
                "val",
                "content",
                "default",
                "data",
                "$string",
                "stringvalue",
            )
            if isinstance(item, str) and (
                is_value or (sure == secret_names.PASSWORD and secret_names.looks_secret(item))
            ):
                redacted[key] = self._secret(sure, name, item)
            elif isinstance(item, dict) and sure == secret_names.PASSWORD:
                redacted[key] = self._inside(sure, name, item)
            else:
                redacted[key] = item
        return redacted

    def _secret(self, sure: str, name: str, value: str) -> str:
        """Redact the value of a key that may hold a secret."""
        if len(value) < 4 or is_plain_setting(name, value, sure):
            return value
        if sure == secret_names.KEY and not (table.is_secret_entry(name, value)):
            return self.redact_text(value)
        if sure == secret_names.TOKEN and " " in value.strip() and ":" in value:
            return self.redact_text(value)
        if name in ("PWD", "OLDPWD", "pwd") and value.startswith(("/", "~", ".")):
            return self.redact_text(value)
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
        return self.redact_value(value)

    def _placeholder(self, kind: str, secret: str) -> str:
        if table.PLACEHOLDER.fullmatch(secret) or stand_ins.is_stand_in(secret):
            return secret
        if kind == "home":
            return stand_ins.make_stand_in(kind, secret, 1) if self._has_stand_ins else "<home>"
        key = (kind, secret.lower() if kind in ("user", "host", "email") else secret)
        if key not in self._numbers:
            if (
                kind == "token"
                and len(self._learned) < MAX_LEARNED_SECRETS
                and secret_names.is_unmistakable(secret)
            ):
                self._learned.append(secret)
                self._cache.clear()
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[key] = self._counts[kind]
        number = self._numbers[key]
        if self._has_stand_ins:
            return stand_ins.make_stand_in(kind, secret, number)
        return f"<{kind}-{number}>"


_NAMED_PART = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z_-]{2,40}?)[-_=](?P<secret>[A-Za-z0-9]{16,})(?![A-Za-z0-9])"
)


def hide_secrets(text: str) -> str:
    """Return ``text`` with ``<hidden>`` in place of each token, key and password. Paths, names and
    addresses stay, so that a command can still be run.
    """
    pieces: list[str] = []
    done = 0
    for start, end, placeholder in Redactor()._edits(text, guesses=False):
        if placeholder.startswith(("<token", "<key", "<credentials")):
            pieces += (text[done:start], "<hidden>")
            done = end
    return "".join((*pieces, text[done:]))
