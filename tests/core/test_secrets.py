"""Every kind of secret is hidden in every channel. The tests are generated from the tables, so a
new row is tested at once.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.command_words import command_text
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.redaction.rules import command_secrets, secret_names, service_keys, token_formats
from reprokit.core.redaction.rules.token_formats import TokenFormat
from tests.support import planted_secrets
from tests.support.examples import examples

SHAPES = (*token_formats.FORMATS, *service_keys.FORMATS)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "redaction.md"


def hidden(text: str) -> str:
    """Return the text as a pack has it, and check that redacting it again changes nothing."""
    redacted = Redactor().redact_text(text)
    assert Redactor().redact_text(redacted) == redacted
    return redacted.replace("\0", "")


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_each_row_is_hidden(shape: TokenFormat) -> None:
    """A token of each row of the tables is hidden, alone and in each channel."""
    for number, (name, channel) in enumerate(planted_secrets.CHANNELS.items()):
        if shape.before and name == "a word before it":
            continue  # the channel's word would replace the word that must precede this token
        text, secret = planted_secrets.make_token(shape, random.Random(number))
        redacted = hidden(channel(text))
        assert not planted_secrets.shows_secret(redacted, secret), (name, channel(text), redacted)


@pytest.mark.parametrize("place", command_secrets.PLACES, ids=lambda place: place.name)
def test_each_place_is_hidden(place: command_secrets.SecretPlace) -> None:
    """The value at each position that reveals a secret is hidden: headers, options of programs,
    parameters, lines of files.
    """
    compiled = re.compile(place.pattern, place.flags)
    for number in range(6):
        text = planted_secrets.make_example(place.pattern, random.Random(number), place.flags)
        match = compiled.search(text)
        assert match is not None
        secret = match["secret"]
        if (
            not any(hint in text.lower() for hint in place.hints)
            or "<" in secret
            or len(secret.strip()) < 6
        ):
            continue
        assert secret not in Redactor().redact_text(text), text


NAMES = st.sampled_from(
    "password db_password dbPassword DB_PASSWORD adminPasswd passphrase client_secret clientSecret"
    " CLIENT_SECRET api_key apiKey x-api-key X-Api-Key accessKey secretAccessKey"
    " AWS_SECRET_ACCESS_KEY privateKey auth_token authToken refresh_token HF_TOKEN X-Auth-Token"
    " credentials SSHPASS PGPASSWORD MYSQL_PWD bindPassword signing_key encryptionKey"
    " webhook_secret bot_token sessionToken REDIS_PASSWORD requirepass licenseKey"
    " storepass_password wifiPsk".split()
)
FORMS = {
    "a variable": "export {n}={s}",
    "a dictionary of Python": "{{'user': 'x', '{n}': '{s}'}}",
    "JSON": '{{"a": 1, "{n}": "{s}"}}',
    "YAML": "a: b\n{n}: {s}\nc: d",
    "a block of YAML": "{n}: |\n  {s}\nc: d",
    "XML": "<{n}>{s}</{n}>",
    "an attribute of XML": '<add key="{n}" value="{s}" />',
    "a call": "connect(host='h', {n}='{s}', port=1)",
    "a default": 'os.getenv("{n}", "{s}")',
    "a subscript": 'os.environ["{n}"] = "{s}"',
    "a SecretStr": "{n}=SecretStr('{s}')",
    "a flag": "tool --{n} {s} --steps 3",
    "a flag with a sign": "tool --{n}={s}",
    "words of a command": '["tool", "--{n}", "{s}", "x"]',
    "a list": '"{p}": ["{s}", "{s}2"]',
    "a list of YAML": "{p}:\n  - {s}\n  - {s}2\nb: c",
    "a header": "> {n}: {s}",
    "Ruby": ":{n} => '{s}'",
    "a setting of Helm": "--set auth.{n}={s},b=c",
    "a manifest": "- name: {n}\n  value: {s}\n",
    "a property": "spring.datasource.{n}={s}",
}


@settings(max_examples=examples(250))
@given(
    NAMES,
    st.sampled_from([*FORMS]),
    st.sampled_from([*planted_secrets.CHANNELS]),
    st.randoms(use_true_random=False),
)
@example("password", "a block of YAML", "text", random.Random(1))
def test_a_named_secret_is_hidden(
    name: str, form: str, channel: str, chance: random.Random
) -> None:
    """The value of a secret name is hidden in every form of assignment, in every channel."""
    secret = planted_secrets.make_password(chance)
    text = FORMS[form].format(n=name, s=secret, p=name if name.endswith("s") else f"{name}s")
    if channel == "a word before it" and form not in ("a variable", "a property"):
        channel = "text"
    redacted = hidden(planted_secrets.CHANNELS[channel](text))
    assert not planted_secrets.shows_secret(redacted, secret), redacted


@settings(max_examples=examples(120))
@given(
    NAMES,
    st.text(planted_secrets.LETTERS + " '\"\\{}:=,!", min_size=8, max_size=30).filter(
        lambda s: s.strip()
    ),
)
@example("password", "0000000,")
def test_structure_hides_any_value(name: str, secret: str) -> None:
    """In records and JSON the value under a secret name, and the word after its option, is hidden
    whatever it is.
    """
    redacted = Redactor().redact_value(
        {
            "a": [{name: secret}],
            "argv": ["x", f"--{name}", secret],
            "one": {"name": name, "value": secret},
        }
    )
    if secret_names.name_sureness(name) == secret_names.PASSWORD:
        assert redacted["a"][0][name] != secret and redacted["one"]["value"] != secret
        assert secret not in redacted["argv"] or secret.startswith("--")
        assert secret not in command_text(["x", f"--{name}", secret]).removeprefix(f"x --{name}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('machine h password "kQ7#mz21" port 3', 'machine h password "<token-1>" port 3'),
        ('passphrase "opensesame"', 'passphrase "<token-1>"'),
        ('token "aB3dE5gH7jKl9m"', 'token "<token-1>"'),
        ('login token "conv2d"', 'login token "conv2d"'),
        ('the password "of the day" is', 'the password "of the day" is'),
    ],
)
def test_a_quoted_value_without_a_sign_is_hidden(text: str, shown: str) -> None:
    """A quoted value after the name of a secret and a space is hidden; a phrase and a word of code
    stay.
    """
    assert hidden(text) == shown


def test_a_secret_of_a_key_is_hidden_in_later_texts() -> None:
    """A text that no rule recognizes loses a secret that a key showed before."""
    secret = "xK9#mQ2$vL7!pR4z"
    assert Redactor().redact_text(f"then {secret} was") == f"then {secret} was"
    shown = Redactor().redact_value([{"password": secret}, f"then {secret} was"])
    assert shown == [{"password": "<token-1>"}, "then <token-1> was"]


def test_a_sentence_under_the_name_of_a_token_is_a_text() -> None:
    """A description of a token stays readable, without the private text in it."""
    shown = Redactor().redact_value({"token": "to use: ask bob@corp.example.com"})
    assert shown == {"token": "to use: ask <email-1>"}


@pytest.mark.parametrize(
    "name",
    "pad_token eos_token_id num_tokens max_tokens tokenizer token_type_ids cls_token image_token"
    " cache_key sort_key key_padding_mask query_key attn_key past_key_values key_states k_proj keys"
    " monkey_patch post_grad_custom_post_pass second_pass bypass compass secretary author authority"
    " accession session_options cookiecutter hotkey turkey keyboard passes encompass pwd_hasher"
    " fx_graph_cache_key dispatch_key token_embedding".split(),
)
def test_names_of_machine_learning_hold_no_secret(name: str) -> None:
    """token, key, pass and session are also words of models and compilers."""
    for value in ("3", "conv2d", "f32[4, 8]", "x.y.z", "train", "fxgraph1234abcd"):
        for text in (
            f"{name}={value}",
            f"{name} = {value}",
            f'"{name}": "{value}"',
            f"--{name} {value}",
            f"{name}: {value}",
        ):
            assert Redactor().redact_text(text) == text
    assert Redactor().redact_value({name: "conv2d"}) == {name: "conv2d"}


@settings(max_examples=examples(300))
@given(st.text(max_size=200) | st.text("\\\"'%&;<>nxu0123abC=: -@/.\n\x1b[\0", max_size=200))
def test_hiding_twice_changes_nothing(text: str) -> None:
    """Texts can be redacted more than once: hidden values stay hidden, and nothing else changes."""
    hidden(text)


@pytest.mark.parametrize(
    "unit",
    [
        "password=",
        "--token ",
        "\\",
        "\\\\n",
        "%25",
        "&amp;",
        "\x1b[",
        "\x1b]8;;",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----END RSA PRIVATE KEY-----",
        "<<cut 1 bytes>>",
        "A1b2C3d4",
        "curl -u ",
        "https://a:b",
        "eyJ.",
        "key:",
        "'",
        '"secret',
        "ssh ",
        "a@b.",
        "cookie: ",
        "-U ",
        "/home",
        "\t",
        "[{(",
        "sk-",
    ],
)
def test_no_text_takes_long(unit: str) -> None:
    """A line of 100 kB that repeats the beginning of a rule takes about ten times the CPU time of
    one of 10 kB.
    """
    import time

    def cpu_s(size: int) -> float:
        text = "token password key " + unit * (size // len(unit))
        began = time.process_time()
        Redactor().redact_text(text)
        return time.process_time() - began

    cpu_s(1_000)
    assert cpu_s(100_000) < 60 * max(cpu_s(10_000), 0.007)


def test_the_documentation_lists_every_kind() -> None:
    """The list of kinds in docs/reference/redaction.md is that of the tables."""
    text = " ".join(PAGE.read_text().split())
    for title, rows in (
        ("Tokens", token_formats.FORMATS),
        ("Keys beside the name of their service", service_keys.FORMATS),
        ("Places", command_secrets.PLACES),
    ):
        names = ", ".join(
            dict.fromkeys(
                row.name.removesuffix(" key") if rows is service_keys.FORMATS else row.name
                for row in rows
            )
        )  # type: ignore[attr-defined]
        assert f"{title}: {names}." in text, f"{title}: {names}."
