"""Recognise a failure whose evidence names reprokit: a folder, a file, a variable or a hook.

Reprokit itself may cause it, so nobody else is responsible before the program has run without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.evidence import blamed_exception
from reprokit.core.judge.stacks.messages import normalise_message
from reprokit.core.records.dumps import Link
from reprokit.core.records.observation import Observation

_NAMES = re.compile(r"\bREPROKIT_\w+|\breprokit-link-\w+|\b_reprokit\b")
_GENERATED = re.compile(r"[^\s'\"]*/[a-z2-7]{2}/c[a-z2-7]{40,}[\w./-]*|[^\s'\"]*\.gch\b")
"""Files that the compiler wrote into the cache of the run: their content is not reprokit's."""


def trace_of_reprokit(seen: Observation, folders: Iterable[str]) -> str:
    """Return what the evidence of a failure names of reprokit; empty if it names nothing.

    ``folders`` are the paths of the run, which messages may contain.
    """
    raised = blamed_exception(seen)
    links = raised.chain if raised is not None else ()
    texts = [*(link.message for link in links), fr.parse_terminate(seen.stderr_tail)]
    for text in texts:
        plain = _GENERATED.sub("", text)
        if named := _NAMES.search(plain):
            return named.group()
        if folder := next((folder for folder in folders if folder and folder in plain), ""):
            return folder
    if raised is not None:
        innermost = next(iter(fr.normalise_frames(fr.root_cause(raised).frames[:1])), None)
        if innermost is not None and innermost.file == "<agent>":
            return f"its hook {innermost.function}"
    return ""


def is_same_end(seen: Observation, status: int | None, link: Link | None) -> bool:
    """Return whether a process without reprokit, with this exit status and last exception, ended as
    the watched one did.
    """
    raised = blamed_exception(seen)
    if raised is None:
        return status == seen.exit_status and status not in (0, None)
    if status in (0, None) or link is None:
        return False
    ends = [*raised.chain] if seen.raised is None else [*raised.chain, *seen.raised.chain]
    return any(
        link.type.rpartition(".")[2] == end.type.rpartition(".")[2]
        and normalise_message(link.message) == normalise_message(end.message)
        for end in ends
    )
