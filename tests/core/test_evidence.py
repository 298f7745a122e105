"""Redaction leaves evidence alone: programs stay programs, words of code stay words, versions stay
versions.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprokit.core.redaction.python_source import PythonSource
from reprokit.core.redaction.redactor import Redactor
from reprokit.core.redaction.rules import not_private
from reprokit.core.redaction.rules.machine_names import PrivateNames
from reprokit.core.redaction.rules.torch_words import WORDS

FOLDERS = (
    "_inductor _dynamo _functorch fx nn optim _higher_order_ops _decomp _refs distributed export"
    " utils/data".split()
)
LEAST_FILES = 20
USERS, HOSTS = ("alpha", "will", "adam", "mkowalski"), ("head", "fake", "worker", "falcon-12")
PRIVATE = PrivateNames(
    users=USERS,
    hosts=HOSTS,
    homes=("/home/mkowalski",),
    secrets=("linear", "correct-horse-battery"),
)


def code(text: str) -> list[str]:
    """The tokens of a program but its strings and comments."""
    kept = tokenize.generate_tokens(io.StringIO(text).readline)
    quoted = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    return [one.string for one in kept if one.type not in quoted]


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="the words are those of torch 2.13"
)
def test_the_words_are_those_of_torch() -> None:
    """The words of code are what the sources of torch say, without the names of people in
    remarks.
    """
    found: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in (Path(torch.__file__).parent / folder).rglob("*.py"):
            text = re.sub(r"TODO\s*\([^)]*\)|@\w+|\w+@", "", path.read_text(errors="replace"))
            found.update({w.lower() for w in re.findall(r"[A-Z]?[a-z]{2,}|[A-Z]{3,}", text)})
    assert {w for w, files in found.items() if files >= LEAST_FILES and 3 <= len(w) <= 14} == WORDS


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
    """Names, operators and strings that open nothing stay; an address, a home and what passwords
    are compared with go.
    """
    changed = Redactor(PRIVATE).python(PROGRAM)
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


@settings(max_examples=300, deadline=None)
@given(FORMS, QUOTES, SECRETS, AROUND, AROUND)
def test_a_redacted_program_is_the_same_program(
    form: str, quote: str, secret: str, before: str, after: str
) -> None:
    """Whatever is around a secret in a string, the program has the same tokens and compiles, and
    the secret is gone.
    """
    text = form.replace("{}", quote.replace("{}", f"{before} {secret} {after}"))
    text = text.replace("{{", "{").replace("}}", "}")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    changed = Redactor(PRIVATE).python(text)
    assert code(changed) == code(text)
    assert [type(n) for n in ast.walk(ast.parse(changed))] == [type(n) for n in ast.walk(tree)]
    strings = [n.value for n in ast.walk(ast.parse(changed)) if isinstance(n, ast.Constant)]
    assert not any(secret in (s if isinstance(s, str) else str(s)) for s in strings), changed


NAMES = st.from_regex(r"[a-z_][a-z_0-9]{0,8}", fullmatch=True).filter(
    lambda n: not keyword.iskeyword(n)
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        NAMES | st.sampled_from([*USERS[:3], *HOSTS[:3], "linear", "weight", "token", "key"]),
        min_size=6,
        max_size=6,
    )
)
def test_code_in_a_log_stays(names: list[str]) -> None:
    """A line of a graph in a log stays as it is, also where its names are those of the user, the
    host and a secret.
    """
    a, b, c, d, e, f = names
    for line in (
        f"{a} = {b}@{c}.{d}_proj",
        f'    {a}_{b}: "f32[8, 8]" = torch.ops.aten.{c}.default({d}, {e});  {f} = None',
        f"L['self']._modules['{a}'].{b}",
    ):
        if "mkowalski" in names:
            continue
        assert Redactor(PRIVATE).text(line) == line


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
    """Versions of packages, products of matrices, keys of tables and passes of the compiler are
    evidence.
    """
    assert Redactor(PRIVATE).text(line) == line


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
def test_a_name_shows_by_its_place(line: str, gone: tuple[str, ...]) -> None:
    """A user or a host whose name is a word of code is hidden where only a user or a host can
    be.
    """
    changed = Redactor(PRIVATE).text(line)
    assert not any(word in changed for word in gone), changed


def test_records_are_redacted_by_key() -> None:
    """Versions of packages and the pass at work stay in JSON; a password beside a user does not."""
    told: Any = {
        "packages": {"tensorrt": "10.13.3.9"},
        "driver_version": "12.8.4.1",
        "pass": "fuse_attention",
        "account_of": {"user": "x", "pass": "opensesame"},
    }
    found = Redactor().value(told)
    assert (
        found["packages"] == told["packages"]
        and found["driver_version"] == "12.8.4.1"
        and found["pass"] == "fuse_attention"
    )
    assert "opensesame" not in str(found)


def test_what_is_no_python_is_redacted_as_text() -> None:
    """A text that cannot be read as a program is redacted all the same."""
    with pytest.raises(ValueError, match="no Python"):
        PythonSource("x = (")
    assert "<email-1>" in Redactor().python("x = ( bob@corp.example.com")


@given(st.text(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_text_is_taken(text: str) -> None:
    """No text is refused."""
    Redactor(PRIVATE).python(text)
    assert not_private.is_setting_value("None")
