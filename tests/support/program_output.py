"""What a program of a test prints."""

from __future__ import annotations

import contextlib
import io


def printed(text: str, file: str = "repro.py") -> str:
    """Run a program in this process, as the file ``file``, and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, "repro.py", "exec"), {"__name__": "__main__", "__file__": file})
    return out.getvalue()
