"""The user's line in a stack that torch writes as text."""

from __future__ import annotations

import re

_FILE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def user_line(text: str) -> str:
    """``file:line in function`` of the innermost frame outside torch, or of torch's where there is
    no other; else empty.
    """
    places = list(_FILE.finditer(text))
    own = [p for p in places if "/torch/" not in p["file"]] or places
    return f"{own[-1]['file']}:{own[-1]['line']} in {own[-1]['function']}" if own else ""
