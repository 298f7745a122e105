"""A cut leaves no part of a secret, wherever the cut is."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.redactor import Redactor
from reprokit.core.shared import cuts
from tests.support.planted_secrets import LETTERS, make_password, shows_secret

LINE = "step 12 of 90: loss 0.731, 4.2 it/s, lr 3e-4\n"


def _key(chance: random.Random) -> tuple[str, str]:
    body = "".join(chance.choice(LETTERS + "+/") for _ in range(256))
    rows = "\n".join(body[i : i + 64] for i in range(0, 256, 64))
    return f"-----BEGIN RSA PRIVATE KEY-----\n{rows}\n-----END RSA PRIVATE KEY-----\n", rows


def _token(chance: random.Random) -> tuple[str, str]:
    secret = "ghp_" + "".join(chance.choice(LETTERS) for _ in range(36))
    return f"cloning with {secret} now\n", secret


def _assigned(chance: random.Random) -> tuple[str, str]:
    secret = make_password(chance)
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
@settings(max_examples=4)
@given(st.randoms(use_true_random=False))
def test_no_part_of_a_secret_survives_a_cut(
    kind: str, is_one_line: bool, chance: random.Random
) -> None:
    """The head, tail and middle of a text, cut at each position around and in a secret, show no
    eight characters of it.
    """
    text, secret = KINDS[kind](chance)
    around = LINE * 3
    if is_one_line:
        around = around.replace("\n", " ")
        text = text if kind == "key" else text.replace("\n", " ")
    whole = f"{around}{text}{around}"
    for position in range(len(around) - 3, len(around) + len(text) + 40, 3):
        for shown in (
            cuts.cut_head(whole, position),
            cuts.cut_tail(whole, len(whole) - position),
            cuts.cut_middle(whole, position, 20),
            cuts.cut_middle(whole, 20, len(whole) - position),
        ):
            hidden = Redactor().redact_text(shown)
            leaked = [
                row
                for row in secret.split("\n" if kind == "key" else " ")
                if shows_secret(hidden, row)
            ]
            assert not leaked, (position, shown, hidden)


@given(st.text(max_size=300), st.integers(1, 200), st.integers(1, 100))
def test_a_cut_text_says_what_is_missing(text: str, max_head: int, max_tail: int) -> None:
    """The remaining text is in its order and no longer than allowed, and the mark counts the
    characters that are missing.
    """
    shortened = cuts.cut_middle(text, max_head, max_tail)
    if len(text) <= max_head + max_tail:
        assert shortened == text
        return
    mark = next(m for m in cuts.MARK.finditer(shortened))
    head, tail = shortened[: mark.start()], shortened[mark.end() :]
    assert text.startswith(head.removesuffix(" ") if not text.startswith(head) else head)
    assert text.endswith(tail[1:])
    assert len(head) <= max_head + 1 and len(tail) <= max_tail + 1


@given(st.text("ab \n", max_size=300), st.integers(1, 200))
def test_a_short_text_is_not_cut(text: str, max_chars: int) -> None:
    """A text that fits is unchanged; a longer text is cut to its beginning or its end."""
    for shortened, is_head in (
        (cuts.cut_head(text, max_chars), True),
        (cuts.cut_tail(text, max_chars), False),
    ):
        if len(text) <= max_chars:
            assert shortened == text
        else:
            mark = next(m for m in cuts.MARK.finditer(shortened))
            kept = shortened[: mark.start()] if is_head else shortened[mark.end() + 1 :]
            assert text.startswith(kept.removesuffix(" ")) if is_head else text.endswith(kept)


@pytest.mark.parametrize("most", range(40, 75))
def test_a_text_that_is_cut_twice_has_one_whole_mark(most: int) -> None:
    """The mark counts what both cuts left out, and no half of the first mark is left."""
    text = "to find the operation that failed to compute its gradient, with anomaly detection on"
    twice = cuts.cut_head(cuts.cut_head(text, 60), most)
    assert len(cuts.MARK.findall(twice)) == 1 and twice.count("<<") == 1
    head, _, rest = twice.partition(" <<cut ")
    assert text.startswith(head) and int(rest.split()[0]) == len(text) - len(head)
