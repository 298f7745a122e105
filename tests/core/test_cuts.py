"""A cut leaves no part of a secret, wherever it is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared import cuts
from tests.planted import LETTERS, password, shows

LINE = "step 12 of 90: loss 0.731, 4.2 it/s, lr 3e-4\n"


def _key(chance: random.Random) -> tuple[str, str]:
    body = "".join(chance.choice(LETTERS + "+/") for _ in range(256))
    rows = "\n".join(body[i : i + 64] for i in range(0, 256, 64))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{rows}\n-----END RSA PRIVATE KEY-----\n", rows


def _token(chance: random.Random) -> tuple[str, str]:
    secret = "ghp_" + "".join(chance.choice(LETTERS) for _ in range(36))
    return f"cloning with {secret} now\n", secret


def _assigned(chance: random.Random) -> tuple[str, str]:
    secret = password(chance)
    return f"export DB_PASSWORD={secret} HOST=db7\n", secret


def _quoted(chance: random.Random) -> tuple[str, str]:
    secret = " ".join(
        chance.choice(["violet", "granite", "lantern", "umbrella"]) + str(chance.randrange(9))
        for _ in range(4)
    )
    return f'{{"user": "bob", "passphrase": "{secret}", "port": 5}}\n', secret


def _url(chance: random.Random) -> tuple[str, str]:
    secret = "".join(chance.choice(LETTERS) for _ in range(24))
    return f"fetching https://bob:{secret}@git.example.org/x.git at once\n", secret


KINDS = {"key": _key, "token": _token, "assigned": _assigned, "quoted": _quoted, "URL": _url}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_one_line", [False, True])
@settings(max_examples=4, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_part_of_a_secret_survives_a_cut(
    kind: str, is_one_line: bool, chance: random.Random
) -> None:
    """Head, tail and middle of a text, cut at each place around and in a secret, show no eight
    characters of it.
    """
    text, secret = KINDS[kind](chance)
    around = LINE * 3
    if is_one_line:
        around = around.replace("\n", " ")
        text = text if kind == "key" else text.replace("\n", " ")
    whole = f"{around}{text}{around}"
    for place in range(len(around) - 3, len(around) + len(text) + 40, 3):
        for shown in (
            cuts.cut_head(whole, place),
            cuts.cut_tail(whole, len(whole) - place),
            cuts.cut_middle(whole, place, 20),
            cuts.cut_middle(whole, 20, len(whole) - place),
        ):
            hidden = Redactor().text(shown)
            found = [
                row for row in secret.split("\n" if kind == "key" else " ") if shows(hidden, row)
            ]
            assert not found, (place, shown, hidden)


@given(st.text(max_size=300), st.integers(1, 200), st.integers(1, 100))
def test_a_cut_text_says_what_is_missing(text: str, most_head: int, most_tail: int) -> None:
    """What is kept is from the text, in its order, no longer than allowed, and the mark counts the
    rest.
    """
    found = cuts.cut_middle(text, most_head, most_tail)
    if len(text) <= most_head + most_tail:
        assert found == text
        return
    mark = next(m for m in cuts.MARK.finditer(found))
    head, tail = found[: mark.start()], found[mark.end() :]
    assert text.startswith(head.removesuffix(" ") if not text.startswith(head) else head)
    assert text.endswith(tail[1:])
    assert len(head) <= most_head + 1 and len(tail) <= most_tail + 1


@given(st.text("ab \n", max_size=300), st.integers(1, 200))
def test_a_short_text_is_not_cut(text: str, most: int) -> None:
    """A text that fits is given as it is; of another, a beginning or an end is."""
    for found, is_head in ((cuts.cut_head(text, most), True), (cuts.cut_tail(text, most), False)):
        if len(text) <= most:
            assert found == text
        else:
            mark = next(m for m in cuts.MARK.finditer(found))
            kept = found[: mark.start()] if is_head else found[mark.end() + 1 :]
            assert text.startswith(kept.removesuffix(" ")) if is_head else text.endswith(kept)
