"""A program whose private text is parsed stays a program that runs."""

from __future__ import annotations

import ast
import ipaddress
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprokit.core.redaction import stand_ins
from reprokit.core.redaction.redactor import Redactor

PRIVATE = {
    "ADDRESS": "10.20.30.40",
    "ROUTER": "fe80::f816:3eff:fe12:3456",
    "MAIL": "alice@acme.com",
    "SIGNED": "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
    "PASSWORD": "hunter2hunter",
    "PIN_PASSWORD": "83911472",
    "FOLDER": "/home/alice/data",
    "API_KEY": "AbCd12EfGh34IjKl56",
}
PROGRAM = "".join(f"{name} = {value!r}\n" for name, value in PRIVATE.items()) + (
    "TABLE = {'10.20.30.40': 1, 'AbCd12EfGh34IjKl56': 2}\n"
)


def values_of(program: str) -> dict[str, str]:
    rows: dict[str, str] = {}
    exec(program, {"__builtins__": {}}, rows)
    return rows


def test_stand_ins_have_the_form_of_the_secrets() -> None:
    """Addresses can be parsed, and words have their length and kinds of characters. Equal texts
    stay equal, and nothing private is left.
    """
    redactor = Redactor()
    first, second = redactor.redacted_programs(PROGRAM)
    assert "<ip-1>" in first
    new = values_of(second)
    assert ipaddress.ip_address(new["ADDRESS"]) and ipaddress.ip_address(new["ROUTER"])
    assert new["MAIL"].count("@") == 1 and new["FOLDER"].split("/")[1] == "home"
    assert new["SIGNED"].startswith("hf_") and new["SIGNED"][3:].isalpha()
    assert int(new["PIN_PASSWORD"]) > 0
    for name in ("SIGNED", "PASSWORD", "PIN_PASSWORD", "API_KEY"):
        assert len(new[name]) == len(PRIVATE[name])
        assert new[name] != PRIVATE[name]
    table = ast.literal_eval(str(new["TABLE"]))
    assert table == {new["ADDRESS"]: 1, new["API_KEY"]: 2}
    for secret in ("alice", "acme", "10.20.30.40", "f816", "hunter", "8391", "AbCd", "aBcDe"):
        assert secret not in second


def test_only_the_prefix_of_a_token_stays() -> None:
    """The first part of a password is a secret too."""
    assert stand_ins.make_stand_in("token", "hf_abcdefghij", 1).startswith("hf_")
    assert "correct" not in stand_ins.make_stand_in("token", "correct-horse-battery", 1)
    assert "hunter" not in stand_ins.make_stand_in("token", "hunter2_abcdefgh", 1)


def test_the_stand_in_of_a_hexadecimal_key_is_one() -> None:
    """A program that decodes its key still runs, and its text stays as it is."""
    program = "api_key = '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b'\n"
    second = Redactor().redacted_programs(program)[1]
    assert len(bytes.fromhex(values_of(second)["api_key"])) == 20 and "9f86" not in second
    assert Redactor().redact_python(second) == second


def test_a_program_with_stand_ins_is_not_changed_again() -> None:
    """The text in the pack is the text that was run, also if a different process redacts it."""
    second = Redactor().redacted_programs(PROGRAM)[1]
    assert Redactor().redact_python(second) == second
    assert Redactor().redact_text(second) == second


def test_a_program_without_private_text_is_run_once() -> None:
    """There is no second text to prove."""
    assert Redactor().redacted_programs("x = 1\n") == ["x = 1\n"]


@given(st.text(string.ascii_letters + string.digits + "-_.!", min_size=8, max_size=40))
def test_a_stand_in_has_the_length_of_the_secret(secret: str) -> None:
    """Its signs are those of the secret too."""
    made = stand_ins.make_stand_in("token", secret, 7)
    assert [c.isalnum() for c in made] == [c.isalnum() for c in secret]
    assert [c.isdigit() for c in made] == [c.isdigit() for c in secret]


@pytest.mark.parametrize(
    "secret",
    ["hunter2hunter", "xylophone-12", "zyx-wvu-9876", "12345678", "99887766", "8899aabb", "1200"],
)
def test_a_secret_is_no_stand_in(secret: str) -> None:
    """It is not kept because it looks like one."""
    assert not stand_ins.is_stand_in(secret)


@pytest.mark.parametrize("kind", ["ip", "mac", "email", "host", "user", "home"])
def test_the_stand_in_of_each_kind_is_recognised(kind: str) -> None:
    """Two secrets have two stand-ins, except for the home folder, which is one."""
    made = {stand_ins.make_stand_in(kind, "10.0.0.1", number) for number in (1, 2)}
    assert all(map(stand_ins.is_stand_in, made)) and len(made) == (1 if kind == "home" else 2)
