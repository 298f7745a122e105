"""The user's line in a stack that torch writes as text."""

from __future__ import annotations

import re

_FILE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def user_line(text: str) -> str:
    """Return ``file:line in function`` of the innermost frame outside torch, or of the innermost
    frame if all are torch's; empty without a frame.
    """
    frames = list(_FILE.finditer(text))
    own = [f for f in frames if "/torch/" not in f["file"]] or frames
    return f"{own[-1]['file']}:{own[-1]['line']} in {own[-1]['function']}" if own else ""
