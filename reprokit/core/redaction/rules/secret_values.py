"""Decide whether the text after a name of a secret is a secret: it may also be code, a type, a
setting or prose.
"""

from __future__ import annotations

import re

from reprokit.core.redaction.rules import not_private, secret_names, torch_words
from reprokit.core.redaction.rules.secret_names import KEY, PASSWORD, TOKEN

_CODE = re.compile(r"[A-Za-z_][\w.]*[\[(]")
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_PRODUCT = re.compile(r"[a-z_][a-z_0-9.]*@[a-z_][a-z_0-9]*(?:\.[a-z_][a-z_0-9]*)+")
_TYPE = re.compile(
    r"[A-Za-z]{0,3}\d+\[|[A-Z][a-z]+(?:[A-Z][a-z]+)*(?:\[|$)"
    r"|(?:str|int|float|bool|bytes|tuple|list|dict|set|frozenset|Any|None|Optional|Sequence|Callable)(?:[\[\])|,:=]|$)|0x[0-9a-fA-F]+[uUlL]{0,3}$"
)
_ARTICLE = re.compile(
    r"\b(?:a|an|the|no|any|this|that|its|each|every|of|first|second|third|last|1st|2nd|3rd)[ \t]$",
    re.IGNORECASE,
)


def is_plain_setting(name: str, value: str, sure: str) -> bool:
    """Return whether a value is a setting, such as a number, ``true`` or the name of a pass, and
    not a password of digits.
    """
    is_password = sure == PASSWORD and secret_names.is_number(value)
    is_setting = not_private.is_setting_value(value) and not is_password
    return is_setting or is_name_of_pass(name, value)


_NAME_OF_PASS = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_.-][A-Za-z0-9]+)*")
_PARTS_OF_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_WORDS_OF_PASSES = frozenset(
    "noop reinplace inplaceable foldable dequant requant qlinear qconv prepack woq gelu silu hardtanh hardswish hardsigmoid"
    " sfdp gemm bmm baddbmm concat mkldnn cse dce licm peephole canonicalize vectorize tensorpipe gumbel".split()
)
"""Words in names of passes that are in too few files of torch for ``torch_words``."""
_MIN_KNOWN = 0.6
"""The share of the letters of a pass's name that belong to words of torch."""


def is_name_of_pass(name: str, value: str) -> bool:
    """Return whether a value names a pass of a compiler: ``pass = "remove_noop_ops"``.

    ``pass`` is a word of compilers before it is one of passwords. The value consists of several
    words, most of them torch's, and the name is not that of a password, such as ``db_pass``.
    """
    if _last(name) != "pass" or secret_names.name_sureness(name) == PASSWORD:
        return False
    parts = [part.lower() for part in _PARTS_OF_NAME.findall(value)]
    if len(value) > 80 or not _NAME_OF_PASS.fullmatch(value):
        return False
    if len(parts) < 2:
        return value in _WORDS_OF_PASSES
    known = sum(len(p) for p in parts if p in torch_words.WORDS or p in _WORDS_OF_PASSES)
    return known >= _MIN_KNOWN * sum(map(len, parts))


def is_secret_text(match: re.Match[str], name: str, sure: str) -> bool:
    """Return whether a quoted text after a name is a secret, and not a type, a shape, a name of
    secrets or a description.
    """
    value = match.group("secret")
    if is_plain_setting(name, value, sure):
        return False
    if len(value) < 4 and not (sure == PASSWORD and match.group("sign")):
        return False
    if not match.group("sign"):  # os.getenv("HF_TOKEN", "..."), ["--api-key", "..."]
        head = match.string[max(0, match.start() - len(name) - 2) : match.start() - len(name)]
        if secret_names.name_sureness(value) or (
            not head.startswith("(") and not secret_names.looks_secret(value)
        ):
            return False
        if sure == KEY:
            return secret_names.looks_random(value)
        return (sure == PASSWORD or secret_names.looks_secret(value) or name.isupper()) and not (
            " " in value and sure != PASSWORD
        )
    if match.group("sign") and (is_name_of_layer(name, value) or is_own_name(name, value)):
        return False
    if _last(name) == "pwd" and value.startswith(("/", "~", ".")):
        return False
    if secret_names.name_sureness(value) and value.replace("_", "").isalpha() and "_" in value:
        return False  # password_field = "db_password"
    if sure == PASSWORD:
        return not value.startswith(("${", "$(", "{{"))
    if (
        "[" in value
        or re.search(r"\{[^}]+\}", value)
        or (" " in value.strip() and (":" in value or sure == KEY))
    ):
        return False  # cls_token: "f32[1, 768]"
    if sure == KEY:
        if name.isupper():
            return secret_names.looks_random(value) or (
                len(value) >= 12 and secret_names.looks_secret(value) and "_" not in value
            )
        return _is_random_key(value)
    return len(value) >= 4


def is_own_name(name: str, value: str) -> bool:
    """Return whether a value repeats its name: ``PASSWORD = "password"``, ``csrf_header =
    "X-CSRFToken"``.
    """
    is_header = (
        re.fullmatch(r"[A-Za-z]+(?:-[A-Za-z]+)+", value) is not None
        and secret_names.name_sureness(value) != ""
    )
    word = value.strip().lower()
    return (
        word in secret_names.split_name(name)
        or word in ("bearer", "basic", "token", "digest")
        or (is_header and value[0].isupper())
    )


def is_name_of_layer(name: str, value: str) -> bool:
    """Return whether a value is a word of torch's code, as in ``api_key = "conv"``. Such a word is
    never a key or a token, but may be a password.
    """
    words = secret_names.split_name(name)
    return (
        bool(words)
        and words[-1].removesuffix("s") in ("key", "token")
        and torch_words.is_code(value)
    )


_HEX_KEY = re.compile(r"[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64}")


def _is_random_key(value: str) -> bool:
    """Return whether the value of a name such as ``key`` is a secret, and not the name of a cache
    or graph.
    """
    if _HEX_KEY.fullmatch(value):
        return True
    has_cases = any(c.islower() for c in value) and any(c.isupper() for c in value)
    return has_cases and secret_names.looks_random(value) and "." not in value


def is_secret_word(text: str, start: int, match: re.Match[str], name: str, sure: str) -> bool:
    """Return whether a word after a name and a sign is a secret, and not a setting or an
    expression.
    """
    value = match.group("secret")
    if re.fullmatch(r"![a-z]+", value) or is_name_of_pass(name, value):  # a tag of YAML
        return False
    is_number = re.fullmatch(r"-?[\d.,]+", value) is not None
    if not_private.is_setting_value(value) and not (
        sure == PASSWORD and is_number and len(value) >= 4
    ):
        return False
    sign = match.group("sign").strip()
    is_looking = secret_names.looks_secret(value)
    is_constant = name.isupper() and sign != "=="
    if value.startswith(("$", "%(", "{")) and not is_looking:
        return False  # a variable of a shell or a template
    if name in ("PWD", "OLDPWD") or (_last(name) == "pwd" and value.startswith(("/", "~", "."))):
        return not value.startswith(("/", "~", "."))
    if is_constant and sure == PASSWORD and match.group("sign") == "=":
        return True
    if value.isalpha() and _ARTICLE.search(text[max(0, start - 8) : start]):
        return False  # "a secret: numbers, constants", "first pass: identify"
    after = text[match.end() : match.end() + 1]
    is_code = (
        _CODE.match(value) is not None or after in ("(", "[") or _TYPE.match(value) is not None
    )
    is_attribute = _ATTRIBUTE.fullmatch(value) is not None and not any(c.isdigit() for c in value)
    before = text[max(0, start - 24) : start].rpartition("\n")[2]
    is_sure = sure == PASSWORD or (sure == TOKEN and is_looking)
    if (
        is_sure
        and match.group("sign") == "="
        and before.strip() in ("", "export", "set")
        and "(" not in value
    ):
        return True  # a line of an environment
    is_name = bool(secret_names.name_sureness(value)) and value.isidentifier()
    is_typed = _TYPE.match(value) is not None
    if sure == PASSWORD:
        return (
            not (
                (is_typed or (sign == "=" and (is_code or is_attribute))) and not _is_no_code(value)
            )
            and not is_name
        )
    if sure == TOKEN:
        if _PRODUCT.fullmatch(value):
            return False
        if is_constant:
            return not is_name and not is_code
        if _last(name) == "pass":
            is_of_compiler = re.fullmatch(r"[a-z]+(?:_[a-z]+)+", value) is not None
            return is_looking or (match.group("sign") == "=" and not is_of_compiler)
        if name.lower() == "token" or (
            _last(name) == "token" and len(secret_names.split_name(name)) == 1
        ):
            return is_looking and not is_code and not is_attribute
        return not is_code and not is_attribute and not is_name
    if is_constant:
        return is_looking and (
            secret_names.looks_random(value) or (len(value) >= 12 and "_" not in value)
        )
    return _is_random_key(value) and not is_code and not is_attribute


def _is_no_code(value: str) -> bool:
    """Return whether a value that looks like code has characters that code does not have there."""
    return secret_names.looks_secret(value) and not re.search(r"[\[(]", value) and "." not in value


def _last(name: str) -> str:
    """Return the last word of a name."""
    words = secret_names.split_name(name)
    return words[-1] if words else ""
