"""A large text is searched by its distinct words, with the outcome of a short one."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.redactor import Redactor
from reprokit.core.redaction.rules import (
    command_secrets,
    machine_names,
    rule,
    searched_text,
    service_keys,
    table,
    token_formats,
)
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.redaction.rules.searched_text import SearchedText
from tests.support import planted_secrets
from tests.support.examples import examples

PRIVATE = PrivateNames(
    users=("mkowalski", "anna smith", "\u0130lker"),
    hosts=("gpu-node-17", "vm"),
    homes=("/root", "/data/people/mkowalski", "/data/anna smith", "/data/b\udcf6b"),
    secrets=("S3cr3tValueOfAVariable", "two words 22"),
)
LINES = [
    f"\t    %add_{n} : [num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%mul_{n}, key))"
    for n in range(60)
]
SPACES = " \t\n\r\v\f\x1c\x85\xa0\u2003\u2028"
ROWS = (*token_formats.FORMATS, *service_keys.FORMATS)
PLACED = (
    "Linux vm 6.1.0 #1 SMP",
    "[1,Linux gpu-node-17 6.1.0",
    "-rw-r--r-- 1 kowalczyk users 12 x",
    "USER=kowalczyk",
    "node17:123:456 [0] NCCL INFO x",
    "connecting to [gpu7.cluster]:29500",
    "mysql -h db -phunter2abc",
    "-docker login -p hunter2abc",
    "curl -u bob:hunter2abc1 x",
    "login as: kowalczyk",
    "kind: Secret\ndata:\n  a: c2VjcmV0\n",
    "Authorization: Bearer abcdef123456ghi",
    "password for bob: hunter2abc",
    "api_key = Xk39fjQ2mmZ1Xk39",
    "parser.add('--password', default='hunter2abc')",
    "x --user root:hunter2abc y",
    "ssh anna@node17 ls",
    "/data/anna smith/x /root/y /home/bob/z ~bob/x C:\\Users\\bob\\x",
    "/data/b\udcf6b/x \u0130",
    "user=\u0130lker /x/\u0130lker \u0130LKER",
    "m\u212aowal\u017fki MKOWALSK\u0131",
    "anna smith and mkowalski of GPU-NODE-17",
    "two words 22",
    "2001:db8:85a3::8a2e:370:7334 fe80::1ff:fe23 10.1.2.3 00:1b:44:11:3a:b7",
    "INSERT INTO users (name, password) VALUES ('bob', 'hunter2abc');",
    "tacacs-server key hunter2abc",
    "zip -P hunter2abc a.zip b",
)
"""Lines with private text whose place shows that it is private."""


def redacted_alike(text: str) -> str:
    """Return the redacted text, and check that it is the same without the search by words."""
    by_words = Redactor(PRIVATE).redact_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searched_text, "MAX_SHORT_CHARS", 1 << 30)
        assert Redactor(PRIVATE).redact_text(text) == by_words
    return by_words


def in_large(line: str) -> str:
    """Redact a large text around a line."""
    large = "\n".join([*LINES, *LINES, line, *LINES])
    assert SearchedText(large).words is not None
    return redacted_alike(large)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_each_token_is_hidden_in_a_large_text(row: token_formats.TokenFormat) -> None:
    """A token of each row of the tables is found in a large text."""
    text, secret = planted_secrets.make_token(row, random.Random(7))
    assert not planted_secrets.shows_secret(in_large(text), secret)


@pytest.mark.parametrize("place", command_secrets.PLACES, ids=lambda place: place.name)
def test_each_place_is_hidden_in_a_large_text(place: command_secrets.SecretPlace) -> None:
    """A secret at each position that reveals one is found in a large text."""
    for number in range(4):
        in_large(planted_secrets.make_example(place.pattern, random.Random(number), place.flags))


@pytest.mark.parametrize("line", PLACED)
def test_private_text_by_its_place_is_hidden_in_a_large_text(line: str) -> None:
    """Each line is redacted in a large text as it is alone."""
    shown = Redactor(PRIVATE).redact_text(f"\n{line}\n")
    assert shown != f"\n{line}\n" and shown in in_large(line)


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from(PLACED), min_size=2, max_size=6),
    st.lists(st.sampled_from(("\n", " ", "\t", "\r\n", "", '"', "\\n")), min_size=6, max_size=6),
)
def test_the_words_do_not_change_the_outcome(lines: list[str], signs: list[str]) -> None:
    """The text is the same with and without the search by words, also after replacements."""
    redacted_alike(
        "\n".join(LINES * 2) + "".join(a + b for a, b in zip(signs, lines, strict=False))
    )


def test_a_learned_secret_is_hidden_in_a_large_text() -> None:
    """A secret that its place showed is hidden in a later large text, whatever its case."""
    redactor, large = Redactor(PRIVATE), "\n".join([*LINES, "x Xk39fjQ2mmZ1 y", *LINES])
    shown = redactor.redact_text('password = "Xk39fjQ2mmZ1"')
    assert shown == 'password = "<token-1>"'
    assert redactor.redact_text(large) == large.replace("Xk39fjQ2mmZ1", "<token-1>")


def test_a_text_that_becomes_short_is_searched_for_hints_with_spaces() -> None:
    """A replacement can make a text so short that its words do not matter any more."""
    for size in range(searched_text.MAX_SHORT_CHARS - 60, searched_text.MAX_SHORT_CHARS + 60, 7):
        text = "ghp_" + "aB3" * 12 + " x[Linux vm 6.1.0 " + "pass " * (size // 5)
        assert "vm" not in Redactor(PRIVATE).redact_text(text), size


def test_only_the_text_around_a_found_word_is_searched() -> None:
    """The words tell where a match is: nowhere, around some words, or anywhere."""
    large = "\n".join([*LINES, "x needle7 y", *LINES, "z needle7 y"])
    searched = SearchedText(large)
    assert searched.words is not None
    assert list(searched.windows_of_words(lambda words: ()) or ()) == []
    found = list(searched.windows_of_words(lambda words: ("needle7", "needle7 ")) or ())
    assert [large[slice(*part)] for part in found] == ["x needle7 y", "z needle7 y"]
    many = map(str, range(searched_text.MAX_SOUGHT + 1))
    assert searched.windows_of_words(lambda words: many) is None
    assert SearchedText("\n".join(map(hex, range(9_000)))).words is None
    assert SearchedText("x " * 1_000).windows_of_words(lambda words: ()) is None


def made_rules() -> Iterator[dict[str, Any]]:
    """Yield the arguments of each rule that is made from a regular expression."""
    made: list[dict[str, Any]] = []

    @functools.wraps(rule.make_rule)
    def recorded(kind: str, pattern: str, *rest: Any, **options: Any) -> rule.Rule:
        made.append({"pattern": pattern, **options})
        return rule.make_rule(kind, pattern, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        for module in (table, machine_names):
            patch.setattr(module, "make_rule", recorded)
        getattr(table.make_rules, "__wrapped__", table.make_rules)(PRIVATE)
    yield from made


def test_what_is_sought_in_words_has_no_white_space() -> None:
    """No match of a rule of one word, and no part that a rule requires, contains white space."""
    patterns = [row["pattern"] for row in made_rules() if row.get("is_word")]
    patterns += [row["part"] for row in made_rules() if row.get("part")]
    assert len(patterns) > 150
    for pattern in patterns:
        assert not any(may_match(_parser.parse(pattern), char) for char in SPACES), pattern
    assert may_match(_parser.parse(r"a(?:b|[^\n])"), " ")


def may_match(nodes: Any, char: str) -> bool:
    """Return whether an expression may match a text with the character; assertions do not count."""
    for name, value in nodes:
        if name in (sre.ASSERT, sre.ASSERT_NOT, sre.AT, sre.GROUPREF):
            continue
        if name in (sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN):
            if is_in([(name, value)] if name != sre.IN else value, char):
                return True
            continue
        if name == sre.BRANCH:
            inner = value[1]
        elif name == sre.GROUPREF_EXISTS:
            inner = [part for part in value[1:] if part]
        else:  # a group or a repetition
            inner = [value[-1]]
        if any(may_match(part, char) for part in inner):
            return True
    return False


def is_in(items: Any, char: str) -> bool:
    """Return whether a set of characters has the character, which is white space."""
    is_negated = items[0][0] == sre.NEGATE
    kinds = (sre.CATEGORY_SPACE, sre.CATEGORY_NOT_DIGIT, sre.CATEGORY_NOT_WORD)
    found = any(
        (name == sre.LITERAL and value == ord(char))
        or (name == sre.NOT_LITERAL and value != ord(char))
        or (name == sre.ANY and char != "\n")
        or (name == sre.RANGE and value[0] <= ord(char) <= value[1])
        or (name == sre.CATEGORY and value in kinds)
        for name, value in items
    )
    return found != is_negated
