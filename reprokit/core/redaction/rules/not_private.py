"""Text that only looks private: code, settings, versions, matrix products. Each predicate returns
True for text that must not be hidden.
"""

from __future__ import annotations

import ipaddress
import re

_SETTING = re.compile(
    r"None|none|null|same-origin|omit|required|optional|True|False|true|false|yes|no|str|int|bool|float|bytes|Optional\[.*|\*+|\.\.\.|-?[\d.,]+"
    r"|(?:b|f|i|u|c)\d+\[.*|Sym[A-Z]\w*.*|<\|?[\w ]*\|?>|\[[A-Z]+\]|</?s>"
)


def is_setting_value(value: str) -> bool:
    """Return whether a value cannot be a secret: numbers, constants, types, shapes, special tokens
    of tokenizers, keys of a process group's store.
    """
    return _SETTING.fullmatch(value) is not None or value.startswith("default_pg/")


_DOMAINS = frozenset(
    "com net org edu gov mil int arpa info biz name pro aero coop museum mobi jobs travel tel asia cat post app dev cloud tech "
    "online site store shop blog web xyz club live life news email agency company digital global group media network "
    "solutions systems software science university academy institute foundation health bank capital finance design studio "
    "works world space host website top vip win zone page run codes engineering consulting services energy education team "
    "internal intranet corp lan local localdomain home private test example invalid cluster "
    "ac ad ae af ag ai al am ao aq ar as at au aw ax az ba bb bd be bf bg bh bi bj bm bn bo br bs bt bw by bz ca cc cd cf cg "
    "ch ci ck cl cm cn co cr cu cv cw cx cy cz de dj dk dm do dz ec ee eg er es et eu fi fj fk fm fo fr ga gd ge gf gg gh gi "
    "gl gm gn gp gq gr gs gt gu gw gy hk hm hn hr ht hu id ie il im in io iq ir is it je jm jo jp ke kg kh ki km kn kp kr kw "
    "ky kz la lb lc li lk lr ls lt lu lv ly ma mc md me mg mh mk ml mm mn mo mp mq mr ms mt mu mv mw mx my mz na nc ne nf ng "
    "ni nl no np nr nu nz om pa pe pf pg ph pk pl pm pn pr ps pt pw py qa re ro rs ru rw sa sb sc sd se sg sh si sk sl sm sn "
    "so sr ss st su sv sx sy sz tc td tf tg th tj tk tl tm tn to tr tt tv tw tz ua ug uk us uy uz va vc ve vg vi vn vu wf ws "
    "ye yt za zm zw".split()
)
"""The last part of domain names: delegated country codes of ISO 3166, common generic domains, and
domains of private networks.
"""
_METHODS = frozenset("to in is it at id mt".split())
"""Country codes that are also methods of tensors."""
_NAMESPACES = frozenset(
    "aten prims prim quantized torch inductor higher_order c10d symm_mem".split()
)
"""Namespaces of torch's operators: ``ops@aten.mm``."""


def is_code(match: re.Match[str]) -> bool:
    """Return whether an address is code: ``x@layer.weight`` is a matrix product."""
    local, _, domain = match.group("secret").rpartition("@")
    labels = domain.split(".")
    last = labels[-1]
    if last.lower() not in _DOMAINS or (not last.islower() and not domain.isupper()):
        return True
    is_short = len(local) <= 2 and all(len(label) <= 2 for label in labels)
    is_method = (
        last in _METHODS and local.isidentifier() and len(labels) == 2 and len(labels[0]) <= 2
    )
    return is_method or is_short or labels[0].lower() == "self" or labels[0] in _NAMESPACES


_VERSION_BEFORE = re.compile(
    r"(?:[A-Za-z][\w.-]{0,60}==[ \t]*|\.so\.|(?i:version|release|build|rev|(?:tensorrt|trt|cudnn|cublas|cufft|curand|cusolver|cusparse|cupti|nvrtc|nvjitlink|npp|cutlass|glibc|musl|libstdc|gcc|clang|llvm|ptxas|nvcc|cmake|onemkl|mkl|onednn|mkldnn|oneccl|openblas|magma|fbgemm|xnnpack|miopen|gdb)[\w+-]{0,24})[\"']?[ \t]*[:=(]?[ \t]*[\"']?v?|\bv)$"
)
_SMALL = 16
"""Four smaller numbers are a version or a shape: only one address in 65,536 has such numbers."""
_NETWORK_BEFORE = re.compile(
    r"(?i:://|@|\b(?:addr\w*|host\w*|ip|node|endpoint|peer|inet|from|to|at|via|server|client|rank|master|dns|nameserver|ping|connect\w*|remote|gateway)\W{0,4})$"
)
_NO_PACKAGE = (
    r"(?!(?:addr|host|ip|node|endpoint|peer|inet|from|to|at|via|server|client|rank|master)\b)"
)
_PACKAGE_BEFORE = re.compile(
    rf"(?:[~<>!]=[ \t]*|(?<![\w-]){_NO_PACKAGE}[A-Za-z]\w*(?:-\w+)+[\"']?[ \t]*[:=@( ][ \t]*[\"'(]?"
    r"|(?i:cuda|nccl|triton|torch|cudnn)[\"']?[ \t]*[:=(]?[ \t]*|\(|[-_+])$"
)


def is_version_or_local(match: re.Match[str]) -> bool:
    """Return whether four numbers with dots are a version (``9.1.0.70``) or an address that
    identifies no machine.
    """
    try:
        address = ipaddress.IPv4Address(match.group("secret"))
    except ValueError:
        return True
    if (
        address.is_loopback
        or address.is_unspecified
        or address.is_multicast
        or int(address) == 0xFFFFFFFF
    ):
        return True
    before = match.string[max(0, match.start() - 48) : match.start()]
    is_near_network = _NETWORK_BEFORE.search(before) or match.string[
        match.end() : match.end() + 1
    ] in (":", "/")
    if not address.is_private and max(address.packed) < _SMALL and not is_near_network:
        return True
    if _VERSION_BEFORE.search(before):
        return True
    if before.rstrip().lower().endswith("nccl"):  # no version of NCCL begins with 10 or more
        return int(address) >> 24 < 10
    return not address.is_private and _PACKAGE_BEFORE.search(before) is not None


_MAC_BEFORE = re.compile(r"(?i:mac|ether|hwaddr|hardware|link/\w{2,12}|lladdr|address)\W{0,6}$")


def is_no_mac(match: re.Match[str]) -> bool:
    """Return whether six numbers, such as ``00:01:02:03:04:05``, are not a MAC address: they have
    no hexadecimal letter, and no word before them names one.
    """
    text = match.group("secret")
    before = match.string[max(0, match.start() - 24) : match.start()]
    return text.replace(":", "").isdigit() and _MAC_BEFORE.search(before) is None


def is_not_ipv6(match: re.Match[str]) -> bool:
    """Return whether a text such as ``c10d::``, ``a[::2]``, ``0:1:2:3:4:5:6:7`` or a clock time is
    not an IPv6 address.
    """
    text = match.group("secret")
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
    return not (
        len(groups) >= least and re.match(r"(?:f[cd]|fe[89ab]|[23])[0-9a-f]", text, re.IGNORECASE)
    )


_VERSION = re.compile(r"v?\d{1,9}(?:\.\d{1,9}){0,5}(?:[-+.a-z_]{0,4}[a-z0-9.]{0,24}){0,3}")


def is_version(value: object) -> bool:
    """Return whether a value can be the version of a package, even if it looks private
    elsewhere.
    """
    return isinstance(value, str) and len(value) <= 40 and _VERSION.fullmatch(value) is not None
