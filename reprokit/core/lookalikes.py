"""What only looks private: code, settings, versions, matrix products. Each predicate says *leave this alone*."""

from __future__ import annotations

import ipaddress
import re

_SETTING = re.compile(
    r"None|null|True|False|true|false|yes|no|str|int|bool|float|bytes|Optional\[.*|\*+|\.\.\.|-?[\d.,]+"
    r"|(?:b|f|i|u|c)\d+\[.*|Sym[A-Z]\w*.*|<\|?[\w ]*\|?>|\[[A-Z]+\]|</?s>"
)


def is_setting_value(value: str) -> bool:
    """True for a value that cannot be a secret: numbers, constants, types, shapes, special tokens of tokenizers."""
    return _SETTING.fullmatch(value) is not None


def is_setting(found: re.Match[str]) -> bool:
    """True where an assignment is code or a setting, not a secret."""
    value = found.group("secret")
    name = found.group(0)[: found.start("secret") - found.start()].lstrip()
    is_number = re.fullmatch(r"-?[\d.,]+", value) is not None
    looks_secret = len(value) >= 8 and re.search(r"\d", value) is not None
    if re.search(r"passw|secret|passphrase", name, re.IGNORECASE):
        return is_setting_value(value) and not is_number
    if is_setting_value(value):
        return True
    if re.search(
        r"(?:bos|eos|pad|unk|cls|sep|mask|class|image|next)_$", found.string[max(0, found.start() - 8) : found.start()]
    ):
        return True  # cls_token and its kin
    if re.search(
        r"(?:pre|post|custom|grad|fx|fusion|joint)_$", found.string[max(0, found.start() - 8) : found.start()]
    ) and name.startswith("pass"):
        return True  # post_grad_custom_post_pass is a compiler's
    if re.match(r"[A-Z0-9_]*?KEY\b", name):  # many keys open nothing
        return not (looks_secret or re.search(r"(?:API|ACCESS|PRIVATE|SECRET|AUTH|SIGNING|ENCRYPTION)_?KEY", name))
    if name[:1].isupper() or name.startswith("-"):
        return False
    if name.rstrip().endswith(('"', "'")):
        return "[" in value or (" " in value.strip() and ":" in value)  # cls_token: "f32[1, 768]"
    if re.match(r"(?i:token)\W", name) and not looks_secret:
        return True  # token = sample
    after = found.string[found.end() : found.end() + 1]
    is_attribute = re.fullmatch(r"[a-z_]\w*(?:\.[A-Za-z_]\w*)+", value) is not None
    return "(" in value or after == "(" or "[" in value or is_attribute  # token = tokenizer.encode(text)


_ATTRIBUTES = frozenset(
    "to in is it at id mt t real imag data grad shape size dim view sum mean max min cos sin exp log abs float half double "
    "int long bool bfloat item clone detach contiguous flatten reshape permute transpose squeeze unsqueeze softmax relu "
    "dtype device layout stride numel diag trace triu tril conj ravel expand repeat chunk split type add mul div sub".split()
)


def is_code(found: re.Match[str]) -> bool:
    """True for ``q@k.transpose``: a matrix product reads like an address."""
    local, _, domain = found.group("secret").rpartition("@")
    labels = domain.lower().split(".")
    is_short = len(local) <= 2 and all(len(label) <= 2 for label in labels)
    return labels[-1] in _ATTRIBUTES or is_short or labels[0] == "self"


_VERSION_BEFORE = re.compile(
    r"(?:[\w-]==[ \t]*|\.so\.|(?i:version|release|build|cudnn|cublas|rev)[\"']?[ \t]*[:=(]?[ \t]*[\"']?v?|\bv)$"
)
_NO_PACKAGE = r"(?!(?:addr|host|ip|node|endpoint|peer|inet|from|to|at|via|server|client|rank|master)\b)"
_PACKAGE_BEFORE = re.compile(
    rf"(?:[~<>!]=[ \t]*|(?<![\w-]){_NO_PACKAGE}[A-Za-z]\w*(?:-\w+)+[\"']?[ \t]*[:=@( ][ \t]*[\"'(]?"
    r"|(?i:cuda|nccl|triton|torch|cudnn)[\"']?[ \t]*[:=(]?[ \t]*|\(|[-_+])$"
)


def is_version_or_local(found: re.Match[str]) -> bool:
    """True where four numbers with dots are a version (``9.1.0.70``) or name no machine."""
    try:
        address = ipaddress.IPv4Address(found.group("secret"))
    except ValueError:
        return True
    if address.is_loopback or address.is_unspecified or address.is_multicast or int(address) == 0xFFFFFFFF:
        return True
    before = found.string[max(0, found.start() - 48) : found.start()]
    if _VERSION_BEFORE.search(before):
        return True
    if before.rstrip().lower().endswith("nccl"):  # no version of NCCL is 10 or more
        return int(address) >> 24 < 10
    return not address.is_private and _PACKAGE_BEFORE.search(before) is not None


def is_not_ipv6(found: re.Match[str]) -> bool:
    """True for ``c10d::``, ``a[::2]``, ``0:1:2:3:4:5:6:7`` and clock times."""
    text = found.group("secret")
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return True
    if address.is_loopback or address.is_unspecified:
        return True
    groups = [g for g in text.split(":") if g]
    if len(groups) == 8:
        return max(map(len, groups)) < 3
    least = 2 if re.match(r"fe[89ab]\w::|f[cd]\w\w:", text, re.IGNORECASE) else 3
    return not (len(groups) >= least and re.match(r"(?:f[cd]|fe[89ab]|[23])[0-9a-f]", text, re.IGNORECASE))
