"""The user's line in a stack that torch writes as text."""

from __future__ import annotations

import re

_FILE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')
_RESUMED = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")


def name_of_function(name: str) -> str:
    """Return the name of the user's function, also for the rest of it after a graph break, for
    which Dynamo makes a function with a name of its own.
    """
    match = _RESUMED.fullmatch(name)
    return match[1] if match else name


def user_line(text: str) -> str:
    """Return ``file:line in function`` of the innermost frame outside torch, or of the innermost
    frame if all are torch's; empty without a frame.
    """
    frames = list(_FILE.finditer(text))
    own = [f for f in frames if "/torch/" not in f["file"]] or frames
    if not own:
        return ""
    return f"{own[-1]['file']}:{own[-1]['line']} in {name_of_function(own[-1]['function'])}"
