"""Redaction does not change evidence: programs stay valid programs, words of code and versions
stay.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections import Counter
from importlib import metadata
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.python_source import PythonSource
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.redaction.rules import not_private
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.redaction.rules.torch_words import WORDS
from tests.support.environments import TORCH_FOLDER
from tests.support.examples import examples

FOLDERS = (
    "_inductor _dynamo _functorch fx nn optim _higher_order_ops _decomp _refs distributed export"
    " utils/data".split()
)
MIN_FILES = 20
USERS, HOSTS = ("alpha", "will", "adam", "mkowalski"), ("head", "fake", "worker", "falcon-12")
PRIVATE = PrivateNames(
    users=USERS,
    hosts=HOSTS,
    homes=("/home/mkowalski",),
    secrets=("linear", "correct-horse-battery"),
)


def code(text: str) -> list[str]:
    """Return the tokens of a program without its strings and comments."""
    kept = tokenize.generate_tokens(io.StringIO(text).readline)
    quoted = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    return [token.string for token in kept if token.type not in quoted]


@pytest.mark.skipif(
    not metadata.version("torch").startswith("2.13."), reason="the words are those of torch 2.13"
)
def test_the_words_are_those_of_torch() -> None:
    """The words of code are those in the sources of torch, without the names of people in
    comments.
    """
    counts: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in (TORCH_FOLDER / folder).rglob("*.py"):
            text = re.sub(r"TODO\s*\([^)]*\)|@\w+|\w+@", "", path.read_text(errors="replace"))
            counts.update({w.lower() for w in re.findall(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}", text)})
    assert {w for w, files in counts.items() if files >= MIN_FILES and 3 <= len(w) <= 14} == WORDS


PROGRAM = """
import torch
# ask mkowalski@corp.example.com about falcon-12
KEY = 'conv2d_3x3'
password = features['secret']
def alpha(will, adam=None, *, head="sum", token: str = "cls"):
    worker = will@layer.weight + q@k.transpose(-1, -2)
    fake = torch.nn.functional.linear(will, head.linear_weight)
    return getattr(worker, 'linear')(f"{adam!r:>{head}} {features['secret']} {worker=}")
class Password(torch.nn.Module): api_key = torch.nn.Linear(3, 4)
path = "/home/mkowalski/data"
password = (
    "open"
    "sesame99"
)
if "another-secret7" == config.password: pass
"""


def test_a_program_keeps_its_names() -> None:
    """Names, operators and strings without a secret stay; an address, a home folder and strings
    that a password is compared with are hidden.
    """
    changed = Redactor(PRIVATE).redact_python(PROGRAM)
    assert code(changed) == code(PROGRAM)
    for kept in (
        "'conv2d_3x3'",
        "features['secret']",
        "will@layer.weight",
        "'linear'",
        '"cls"',
        '"sum"',
    ):
        assert kept in changed, kept
    for gone in (
        "corp.example.com",
        "mkowalski",
        "falcon-12",
        "sesame99",
        "another-secret7",
        '"open"',
    ):
        assert gone not in changed, gone


SECRETS = st.sampled_from(
    [
        "ghp_" + "aB3dE5gH7j" * 3 + "Kl9mN0",
        "mkowalski@corp.example.com",
        "correct-horse-battery",
        "10.20.30.40",
        "/home/mkowalski/x",
    ]
)
QUOTES = st.sampled_from(
    [
        "'{}'",
        '"{}"',
        "'''{}'''",
        '"""{}"""',
        "r'{}'",
        "b'{}'",
        "f'{}'",
        "f'{{x}}{}'",
        "rf\"{{y['a']}} {}\"",
    ]
)
FORMS = st.sampled_from(
    [
        "x = {}",
        "password = {}",
        "f({}, token={})",
        "d = {{'password': {}, 'x': {}}}",
        "x = [{},\n  {}]",
        "assert x.secret == {}, {}",
        "def f(key={}): return {}",
        "x = {}.split('@')  # {}",
        'class A:\n    """Doc."""\n    y: str = {}\n',
        "x = ({}\n     {})",
    ]
)
AROUND = st.text(alphabet="ab \\'\"{}@.:#<>-\n%1", max_size=12)


@settings(max_examples=examples(300))
@given(FORMS, QUOTES, SECRETS, AROUND, AROUND)
@example("password = [{}]", "f'{{x}}{}'", "ghp_" + "aB3dE5gH7j" * 3 + "Kl9mN0", "", "")
def test_a_redacted_program_is_the_same_program(
    form: str, quote: str, secret: str, before: str, after: str
) -> None:
    """Whatever is around a secret in a string, the program has the same tokens and compiles, and
    the secret is hidden.
    """
    text = form.replace("{}", quote.replace("{}", f"{before} {secret} {after}"))
    text = text.replace("{{", "{").replace("}}", "}")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    changed = Redactor(PRIVATE).redact_python(text)
    assert code(changed) == code(text)
    assert [type(n) for n in ast.walk(ast.parse(changed))] == [type(n) for n in ast.walk(tree)]
    strings = [n.value for n in ast.walk(ast.parse(changed)) if isinstance(n, ast.Constant)]
    assert not any(secret in (s if isinstance(s, str) else str(s)) for s in strings), changed


NAMES = st.from_regex(r"[a-z_][a-z_0-9]{0,8}", fullmatch=True).filter(
    lambda n: not keyword.iskeyword(n)
)


@settings(max_examples=examples(150))
@given(
    st.lists(
        NAMES | st.sampled_from([*USERS[:3], *HOSTS[:3], "linear", "weight", "token", "key"]),
        min_size=6,
        max_size=6,
    )
)
@example(["token", "b", "c", "d", "e", "f"])
def test_code_in_a_log_stays(names: list[str]) -> None:
    """A line of a graph in a log stays unchanged, even when its names equal those of the user, the
    host or a secret.
    """
    a, b, c, d, e, f = names
    for line in (
        f"{a} = {b}@{c}.{d}_proj",
        f'    {a}_{b}: "f32[8, 8]" = torch.ops.aten.{c}.default({d}, {e});  {f} = None',
        f"L['self']._modules['{a}'].{b}",
    ):
        if "mkowalski" in names:
            continue
        assert Redactor(PRIVATE).redact_text(line) == line


@pytest.mark.parametrize(
    "line",
    [
        "tensorrt 10.13.3.9",
        "nvidia-cublas 12.8.4.1",
        "[pip3] nvidia-cudnn-cu12==9.10.2.21",
        "nvidia-cufft-cu12  11.3.3.83  pypi_0",
        "cudnn: 9.1.0.70",
        "libnvinfer10 version 10.9.0.34",
        "out = x@layer.weight",
        "KEY = 'conv2d_3x3'",
        "- pass at work: `post_grad_custom_post_pass`",
        "optimizer adam, alpha=0.1",
        "pass=fuse_chunk_concat_pass graph=0",
        "api_key = ('conv', 3)",
        "token: 'softmax'",
        "kernel 3.3.1.1 of stages 00:01:02:03:04:05",
    ],
)
def test_a_line_stays(line: str) -> None:
    """Versions of packages, matrix products, keys of tables and compiler passes are evidence."""
    assert Redactor(PRIVATE).redact_text(line) == line


@pytest.mark.parametrize(
    ("line", "gone"),
    [
        ("user=alpha on host: head", ("alpha", "head")),
        ("alpha@head:~$ ls", ("alpha", "head")),
        ("http://head:8000/x", ("head",)),
        ("ls /scratch/adam/x", ("adam",)),
        ("worker:29500 is down", ("worker",)),
        ("write to mario.rossi@azienda.it", ("rossi",)),
        ("from 10.13.3.9 port 22", ("10.13.3.9",)),
        ("by mkowalski", ("mkowalski",)),
        ("ether 00:16:32:54:76:98", ("00:16",)),
        ("at 00:1b:44:11:3a:b7", ("00:1b",)),
        ("from 8.8.4.100", ("8.8.4.100",)),
    ],
)
def test_a_name_is_recognized_by_its_position(line: str, gone: tuple[str, ...]) -> None:
    """A user or host name that is also a word of code is hidden only where a user or host name is
    expected.
    """
    changed = Redactor(PRIVATE).redact_text(line)
    assert not any(word in changed for word in gone), changed


def test_records_are_redacted_by_key() -> None:
    """Versions of packages and the current pass stay in JSON; a password beside a user does not."""
    record: Any = {
        "packages": {"tensorrt": "10.13.3.9"},
        "driver_version": "12.8.4.1",
        "pass": "fuse_attention",
        "account_of": {"user": "x", "pass": "opensesame"},
    }
    redacted = Redactor().redact_value(record)
    assert (
        redacted["packages"] == record["packages"]
        and redacted["driver_version"] == "12.8.4.1"
        and redacted["pass"] == "fuse_attention"
    )
    assert "opensesame" not in str(redacted)


def test_text_that_is_not_python_is_redacted_as_text() -> None:
    """A text that cannot be parsed as a program is redacted as plain text."""
    with pytest.raises(ValueError, match="not Python"):
        PythonSource("x = (")
    assert "<email-1>" in Redactor().redact_python("x = ( bob@corp.example.com")
    assert Redactor().redact_python("password = 'kQ7#mz21' 1\n") == "password = '<token-1>' 1\n"


@given(st.text(max_size=60))
@settings(max_examples=examples(200))
def test_any_text_is_accepted(text: str) -> None:
    """No text raises an error."""
    Redactor(PRIVATE).redact_python(text)
    assert not_private.is_setting_value("None")
