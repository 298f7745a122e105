"""Rules that find names of people and machines, and home folders, by their text or by their
position.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

from reprokit.core.redaction.rules.rule import Rule, make_rule
from reprokit.core.redaction.rules.searched_text import lower_text
from reprokit.core.redaction.rules.secret_places import MARK
from reprokit.core.redaction.rules.torch_words import is_code


@dataclass(frozen=True)
class PrivateNames:
    """Private names and values of the machine that makes a pack."""

    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    homes: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    """Values of environment variables with secret names."""


# Words in torch's own paths and logs: a user or host with such a name is hidden only in the home
# folder.
_PATH_WORDS = frozenset(
    "root user users admin ubuntu debian centos fedora runner build builder test tests dev work home main local localhost "
    "host node torch triton cuda cpu gpu python python3 nvidia amd intel arm linux kernel model models data train lib bin usr "
    "opt tmp var src inductor dynamo compile compiler graph tensor cache code core agent default none "
    "a100 h100 h200 b200 b300 v100 l40s rtx4090 rtx5090 mi300 mi300x".split()
)
_BEFORE_PATH = r"(?:(?<![A-Za-z0-9./-])(?<!<home>)|(?<=://)|(?<=[\s\"',=\[(])-{1,2}[A-Za-z][\w-]{0,20}?|^-{1,2}[A-Za-z][\w-]{0,20}?|://[\w.@+-]{1,80}?)"
"""The text before a path: it may follow a flag (``-isystem/home``) or the host of a URL."""
_REMOTE = (
    r"\b(?:ssh|scp|sftp|rsync|mosh|sshfs|ssh-copy-id|autossh|pdsh|clush)\b[^\n|;&]{0,160}?[\s\"',]"
)
_REMOTE_HINTS = ("ssh", "scp", "sftp", "rsync", "mosh", "pdsh", "clush")


_LABEL = r"[\"']?[ \t]*[=:(][ \t]*[\"']?"
_IS_USER = rf"(?<![A-Za-z])(?:user(?:[-_ ]?name)?|login|owner|logname|author|account|[ug]id=\d{{1,9}}){_LABEL}"
_IS_HOST = rf"(?<![A-Za-z])(?:host(?:[-_ ]?name)?|node(?:[-_ ]?name)?|machine|server|addr(?:ess)?|endpoint|peer){_LABEL}"
"""A word before the name of a user or a machine, and the sign between the two."""


_ROOTS = frozenset(
    "torch triton model models module modules config nn net layer layers graph kernel kernels inductor dynamo functorch".split()
)
_MACHINES = frozenset(
    "server servers node nodes host hosts worker workers master storage cache db api".split()
)
"""First labels of dotted names in code, and labels that name machines."""


def machine_rules(private: PrivateNames) -> list[Rule]:
    """Make the rules for home folders, for users and hosts of this machine (anywhere, unless they
    are words of code), and for hosts by their position.
    """
    rules: list[Rule] = []
    for home in sorted(
        {h.rstrip("/") for h in private.homes if len(h.rstrip("/")) > 1}, key=len, reverse=True
    ):
        rules.append(
            make_rule(
                "home",
                rf"{_BEFORE_PATH}(?P<secret>{re.escape(home)})(?![\w.-])",
                (lower_text(home),),
                is_word=_is_word(home),
            )
        )
    folder = r"(?:/[\w.-]{1,40}){0,5}?/(?:home|homes|home\d|Users|users)"
    rules += [
        make_rule(
            "home",
            rf"{_BEFORE_PATH}(?P<secret>{folder}/(?!<)(?:[^\s/:;,'\"`<>()\[\]\\])+)",
            ("/home", "/users/"),
            is_word=True,
        ),
        make_rule(
            "home",
            r"(?P<secret>(?<![A-Za-z])[A-Za-z]:[\\/]+Users[\\/]+(?!<)[^\s\\/\"'<>|:]+)",
            (":\\", ":/"),
            is_word=True,
        ),
        make_rule(
            "user",
            r"(?:(?<=[\s\"'=:(])|^)~(?P<secret>[a-z_][\w-]{2,31})(?=/[A-Za-z.])",
            ("~",),
            is_near=True,
            is_word=True,
        ),
    ]
    for user in _names(private.users):
        rules.append(
            make_rule(
                "user",
                rf"(?:(?<=/)|(?<=torchinductor_))(?P<secret>{re.escape(user)})(?=/|$|[\s'\":,])",
                (lower_text(user),),
                is_word=_is_word(user),
            )
        )
    for user in _names(private.users, is_code):
        is_long = len(user) >= 5
        before, after = (
            (r"[A-Za-z0-9]", r"[A-Za-z0-9]") if is_long else (r"[\w.%]", r"[\w(=\[]|\.\w")
        )
        rules.append(
            make_rule(
                "user",
                rf"(?<!{before})(?P<secret>{re.escape(user)})(?!{after})",
                (lower_text(user),) if user.isascii() else (),
                flags=re.IGNORECASE,
                is_word=_is_word(user),
            )
        )
    for host in _names(private.hosts, is_code):
        rules.append(
            make_rule(
                "host",
                rf"(?<![A-Za-z0-9])(?P<secret>{re.escape(host)})(?![A-Za-z0-9])",
                (lower_text(host),) if host.isascii() else (),
                flags=re.IGNORECASE,
                is_word=_is_word(host),
            )
        )
    for user in sorted(n for n in private.users if n not in ("", "root")):
        name = rf"(?P<secret>{re.escape(user)})"
        hosts = "|".join(re.escape(n) for n in sorted(private.hosts) if n) or "(?!)"
        rules.append(
            make_rule(
                "user",
                rf"{_IS_USER}{name}(?![\w.-])",
                (lower_text(user),),
                flags=re.IGNORECASE,
                is_near=True,
            )
        )
        rules.append(
            make_rule(
                "user",
                rf"(?<![\w.]){name}(?=@(?:{hosts})(?![\w.-]))",
                (lower_text(user),),
                is_near=True,
                is_word=_is_word(user + hosts),
            )
        )
    for host in sorted(n for n in private.hosts if n and n != "localhost"):
        # a short or common name is hidden only where nothing but a host is possible: x@head is a
        # matrix product
        is_word = is_code(host)
        before = r"<user-\d{1,3}>@|\bLinux |//" if is_word else r"\w@|<user-\d{1,3}>@|\bLinux |//"
        rules.append(
            make_rule(
                "host",
                rf"(?:{before})(?P<secret>{re.escape(host)})(?![\w.-])",
                (lower_text(host),),
                part=rf"{re.escape(host)}(?![\w.-])" if _is_word(host) else "",
            )
        )
        rules.append(
            make_rule(
                "host",
                rf"{_IS_HOST}(?P<secret>{re.escape(host)})(?![\w.-])",
                (lower_text(host),),
                flags=re.IGNORECASE,
                is_near=True,
            )
        )
        rules.append(
            make_rule(
                "host",
                rf"(?<![\w.])(?P<secret>{re.escape(host)})(?=:\d{{4,5}}\b)",
                (lower_text(host),),
                is_near=True,
                is_word=_is_word(host),
            )
        )
    rules += _names_by_place()
    inner = "internal intranet corp lan localdomain home.arpa".split()
    rules.append(
        make_rule(
            "host",
            # a label with a dash, or at least three labels: obj.internal is an attribute
            r"(?:(?<![\w./-])|(?<=://))(?!(?:self|cls|torch|this)\.)(?P<secret>(?:[a-z0-9]+-[a-z0-9-]*|[a-z0-9]+(?=\.[a-z0-9-]+\.))(?:\.[a-z0-9-]+)*"
            rf"\.(?:{'|'.join(map(re.escape, inner))}))\b(?![(\w])",
            tuple(f".{name}" for name in inner),
            _is_attribute,
            flags=re.IGNORECASE,
            is_near=True,
            is_word=True,
            is_by_form=True,
        )
    )
    address = r"\d+\.\d+\.\d+\.\d+"
    name = rf"(?P<secret>(?!{MARK}|localhost\b|{address})[A-Za-z0-9][\w.-]*)"
    # other machines of a cluster, at positions where only a host is possible
    rules += [
        make_rule(
            "host",
            rf"(?m:^)[ \t]*{name}:\d+:\d+ \[\d+\] NCCL",
            ("nccl",),
            part=r":\d+:\d+(?!\S)",
        ),
        make_rule("host", rf"\bMASTER_ADDR[\"']?\s*[=:]\s*[\"']?{name}", ("master_addr",)),
        make_rule("host", rf"rdzv[-_]endpoint[\"']?[=:\s]\s*[\"']?{name}(?=:\d)", ("rdzv",)),
        make_rule(
            "host",
            rf"(?:connect(?:ing)? to|remote|peer|client socket)[^\n]{{0,40}}?\[{name}\]:\d",
            ("]:",),
            part=r"\]:\d",
        ),
        make_rule(
            "host",
            r"\bSLURM\w*(?:NODELIST|NODENAME|HOST|_USER|_ACCOUNT)=(?P<secret>(?!<)[^\s\"',;]+)",
            ("slurm",),
        ),
        make_rule("host", rf"\bsrun: error: {name}(?=:)", ("srun",)),
        make_rule("host", rf"\w@{name}(?=:[~/])", ("@",), is_word=True),
        # ssh alice@node17, rsync -a x bob@login:/y
        make_rule(
            "user",
            rf"{_REMOTE}(?P<secret>(?!<|git@)[A-Za-z_][\w.-]{{0,40}})(?=@[A-Za-z0-9<])",
            _REMOTE_HINTS,
        ),
        make_rule("host", rf"{_REMOTE}(?:[A-Za-z_][\w.-]{{0,40}}|{MARK})@{name}", _REMOTE_HINTS),
        make_rule(
            "host",
            r"(?<![\w.-])(?P<secret>ip-\d{1,3}(?:-\d{1,3}){3}(?:\.[\w.-]{1,80})?)(?![\w-])",
            ("ip-",),
            is_word=True,
        ),
        make_rule("host", rf"\bLinux (?!version\b){name}(?= \d+\.\d+\.)", ("linux ",)),
        # the host is hidden already
        make_rule(
            "user",
            r"(?<![\w.@/])(?P<secret>(?!git@)[A-Za-z_][\w.-]{0,40})(?=@<host-\d{1,4}>)",
            ("@<host-",),
            is_near=True,
        ),
    ]
    return rules


_MODE = r"[-dlbcps][rwxsStT-]{9}"
"""The mode of a file in a listing."""


def _names_by_place() -> list[Rule]:
    """Make the rules for users and hosts of any machine, at positions where only they can be."""
    name = rf"(?P<secret>(?!{MARK}|root\b)[A-Za-z_][\w.-]{{1,31}})"
    end = r"(?=$|[\s\"',;])"
    by_place = functools.partial(make_rule, keep=_is_path_word, is_near=True)
    return [
        # an environment
        by_place(
            "user",
            rf"(?m:^|(?<=[\s\"']))(?:USER|LOGNAME|SUDO_USER|USERNAME)={name}{end}",
            ("user=", "logname=", "username="),
        ),
        by_place(
            "user",
            rf"\bGIT_(?:AUTHOR|COMMITTER)_NAME=[\"']?(?P<secret>(?!{MARK})[^\n\"'=]{{2,60}}?)(?=$|[\n\"']|\s\w+=)",
            ("git_",),
        ),
        by_place(
            "host",
            rf"(?m:^|(?<=[\s\"']))(?:HOSTNAME|COMPUTERNAME)=(?!localhost\b){name}{end}",
            ("hostname=", "computername="),
        ),
        # the prompt of a shell: [alice@node17 work]$
        by_place("user", rf"\[{name}(?=@[\w.<>-]{{1,80}} [^\]\n]{{1,80}}\][$#%])", ("@",)),
        by_place(
            "host",
            rf"\[(?:[\w.-]{{1,32}}|{MARK})@(?P<secret>(?!{MARK})[A-Za-z0-9][\w.-]{{0,80}})(?= [^\]\n]{{1,80}}\][$#%])",
            ("@",),
        ),
        # folders that programs name after the user
        by_place("user", rf"\b(?:torchinductor|ray)_{name}(?=/)", ("torchinductor_", "ray_")),
        # the output of id, ls and ssh
        by_place("user", rf"\b[ug]id=\d{{1,9}}\({name}(?=\))", ("id=",)),
        by_place(
            "user",
            rf"(?m:^){_MODE}[.+@]? +\d+ {name}(?= )",
            ("rw", "r-x"),
            part=_MODE,
        ),
        by_place("user", rf"\blogin(?: as:)? {name}(?= password\b|$)", ("login ",)),
        # folders of users on shared disks
        by_place(
            "home",
            rf"{_BEFORE_PATH}(?P<secret>/(?:scratch|fsx)/(?!{MARK})[A-Za-z_][\w.-]{{2,31}})(?=/)",
            ("/scratch/", "/fsx/"),
        ),
    ]


def _is_path_word(match: re.Match[str]) -> bool:
    """Return whether a name by its place is a common folder, and not a user."""
    last = match["secret"].rpartition("/")[2].lower()
    return last in _PATH_WORDS or last.rstrip("s") in _PATH_WORDS


def _is_attribute(match: re.Match[str]) -> bool:
    """Return whether a name such as ``triton.compiler.internal`` is an attribute of a module: all
    of its labels are words of code, and nothing near it shows a host.
    """
    labels = match["secret"].split(".")
    after = match.string[match.end() : match.end() + 2]
    is_host = match.string[max(0, match.start() - 1) : match.start()] in ("@", "[") or (
        after[:1] == "/" or (after[:1] == ":" and after[1:].isdigit())
    )
    is_of_code = all((len(label) <= 2 or is_code(label)) for label in labels[:-1])
    return not is_host and is_of_code and labels[0] in _ROOTS and _MACHINES.isdisjoint(labels)


def _is_word(name: str) -> bool:
    return not any(map(str.isspace, name))


def _names(
    names: tuple[str, ...], is_common: Callable[[str], bool] = lambda name: False
) -> list[str]:
    """Return the names that are neither words of paths nor ``is_common``, longest first."""
    usable = {n for n in names if len(n) >= 3 and n.lower() not in _PATH_WORDS and not is_common(n)}
    return sorted(usable, key=lambda n: (-len(n), n))
