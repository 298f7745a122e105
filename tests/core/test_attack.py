"""Secrets that an independent attack on the redaction revealed, and harmless text that it changed:
one example of each class.
"""

from __future__ import annotations

import random
import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.redactor import Redactor
from tests.support.examples import examples

SECRET = "Xk39" + "fjQ2mmZ1"
BODY = "\n".join(
    f"[rank0]: {row * 4}" for row in ("Ab3/Xy9+Qw8ErT2z", "Zx7cVb6nMq5wEr4t", "Ty1uIo2pLk3jHg4f")
)


@pytest.mark.parametrize(
    "text",
    [
        "-postgresql://bob:{s}@db/x",
        "-vault login {s}",
        "ipmitool -H x -U ADMIN -P {s} power status",
        "psexec -u bob -p {s} cmd",
        "netexec smb h -u bob -p '{s}'",
        "etcdctl --user root:{s} get x",
        "impacket-psexec dom/bob:{s}@h",
        "echo '{s}' | kinit bob",
        "kinit bob <<< {s}",
        "ssh-keygen -t rsa -N '{s}' -f k",
        "keytool -storepass {s} -list",
        "htpasswd -nb bob {s}",
        "cargo login {s}",
        "-Dsonar.login={s}",
        "--conf spark.hadoop.fs.s3a.secret.key={s} x.py",
        "tacacs-server key {s}",
        "error: argument --api-key: invalid value: '{s}'",
        "INSERT INTO users (name, password) VALUES ('bob', '{s}');",
        "WITH PASSWORD = N'{s}'",
        "PASSWORD+={s}",
        "HF_TOKEN ?= {s}",
        'hmac_key <- "{s}"',
        'char id_token[] = "{s}";',
        'std::string api_key{"{s}"};',
        'Dim secret_key As String = "{s}"',
        'const PGPASSWORD: &str = "{s}";',
        'db_password : constant String := "{s}";',
        "**passwd**: {s}",
        "| api_key | {s} |",
        "bindpw={s}",
        "trustStorePass = '{s}'",
        '{"data":{"createKey":{"secret":"{s}"}}}',
        '{"service_password": {"value": "{s}"}}',
        '{"Name":"totp_secret","Value":"{s}"}',
        '<entry key="client_secret">{s}</entry>',
        "<property><name>api_secret</name><value>{s}</value></property>",
        "<key>DB_PASSWORD</key>\n<string>{s}</string>",
        "assert '{s}' == config.password",
    ],
)
def test_a_secret_is_hidden(text: str) -> None:
    """A secret in a command, an assignment of any language, a mapping, a table or an XML element is
    hidden.
    """
    redacted = Redactor().redact_text(text.replace("{s}", SECRET))
    assert SECRET not in redacted, redacted


@pytest.mark.parametrize(
    "value",
    [
        {"password": {"value": SECRET}},
        {"credentials": {"a": {"b": SECRET}}},
        ["mysql", "-uroot", f"-p{SECRET}"],
        ["curl", "-u", f"bob:{SECRET}", "https://x"],
        ["sshpass", "-p", SECRET, "ssh", "h"],
    ],
)
def test_structure_shows_a_secret(value: Any) -> None:
    """Values below a secret name, and words of a command line, are hidden in JSON."""
    assert SECRET not in str(Redactor().redact_value(value))


@pytest.mark.parametrize(
    "text",
    [
        "p.add_argument('--password', default='{s}')",
        "user, password = 'bob', '{s}'",
        "password = 'abc' + '{s}'",
        "password = p or '{s}'",
        "log.info('password=%s', '{s}')",
        "def get_password():\n    return '{s}'\n",
        "password: str = field(default='{s}')",
        "x = 'token={}'.format('{s}')",
    ],
)
def test_a_program_shows_a_secret(text: str) -> None:
    """A string that the syntax tree connects with a secret name is hidden."""
    assert SECRET not in Redactor().redact_python(text.replace("{s}", SECRET))


def test_a_cut_key_behind_prefixes_is_hidden() -> None:
    """A private key without its end is hidden when each of its lines has the prefix of a
    launcher.
    """
    redacted = Redactor().redact_text(
        f"[rank0]: -----BEGIN PRIVATE KEY-----\n{BODY}\n[rank0]: step 3\n"
    )
    assert "Xy9" not in redacted and "Lk3j" not in redacted and "step 3" in redacted


def test_a_secret_is_learned() -> None:
    """A value that is a secret at one position in a text is hidden at every other position."""
    redacted = Redactor().redact_text(f"DB_PASSWORD={SECRET}\nretrying with {SECRET} now")
    assert SECRET not in redacted and redacted.endswith("retrying with <token-1> now")


def test_a_file_name_with_a_name_and_a_secret() -> None:
    """The value after a secret name in a file name is hidden."""
    assert "Q4DksWzWIe" not in Redactor().redact_file_name(
        "model_token=Q4DksWzWIe7662xB6wWhn6Va_epoch3.pt"
    )


@pytest.mark.parametrize(
    "text",
    [
        "PyJWT==2.8.0",
        "Linux version 5.15.0-105-generic",
        "password: !vault |",
        "credentials: same-origin",
        "cookie: none",
        "authorization: none",
        "curl -u https://x",
        "PASS tests/test_token.py",
        "pass through",
        "docker run -u 1000:1000 -p 8080:80 x",
        "echo step1234 | tee log",
        "image: repo/name:tag123456@sha256:0a1b",
    ],
)
def test_harmless_text_stays(text: str) -> None:
    """Versions, tags, settings and ports are not secrets."""
    assert Redactor().redact_text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        'headers = {"Authorization": f"Bearer {token}"}',
        'headers = {"Authorization": "Bearer " + token}',
        'PASSWORD = "password"',
        'csrf_header = "X-CSRFToken"',
        'pwd = "/tmp"',
    ],
)
def test_harmless_programs_stay(text: str) -> None:
    """Names of headers, of schemes and of the secret itself are not secrets."""
    assert Redactor().redact_python(text) == text


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32), st.integers(20, 64))
def test_a_random_word_is_hidden_in_a_log(seed: int, size: int) -> None:
    """Most words of 20 to 64 random letters and digits are hidden in a sentence. In a program they
    may be data and stay.
    """
    chance = random.Random(seed)
    words = [
        "".join(chance.choice(string.ascii_letters + string.digits) for _ in range(size))
        for _ in range(40)
    ]
    assert sum(word in Redactor().redact_text(f"using {word} now") for word in words) <= 24
    kept = Redactor().redact_python(f"DATA = {words!r}")
    # at most one word has the format of a token by chance
    assert sum(word not in kept for word in words) <= 1


@pytest.mark.parametrize(
    "word",
    [
        "cpp_CppMicroGemmFP32Vec_0",
        "Qwen2VLForConditionalGeneration",
        "GPT2LMHeadModel",
        "Float8_e4m3fn",
        "Int8DynActInt4WeightLinear",
        "fxgraph4b7qk2m5x6",
        "sm_100a_A100SXM4",
        "ScaledDotProductFlashAttention2",
        "AutogradCUDA0Backward1",
        "triton_poi_fused_add_0",
        "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7",
        "BertForMaskedLM_b32_fp16",
        "V1123_0",
    ],
)
def test_an_identifier_is_not_random(word: str) -> None:
    """Names of models, kernels, symbols and types consist of words."""
    assert Redactor().redact_text(f"using {word} now") == f"using {word} now"
