"""Recognise exceptions that mean that a limit of the machine or the user is reached, and not a
defect.
"""

from __future__ import annotations

import errno

_OF_ERRNO = {
    errno.EMFILE: "too many files are open (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.EAGAIN: "no more processes or threads may be started (ulimit -u)",
    errno.ENOMEM: "memory ran out (ulimit -v, or the machine's own)",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file reached its size limit (ulimit -f)",
}


def limit_in(problem: BaseException) -> str:
    """The limit that an exception reports as reached, in words; empty for any other exception."""
    seen: BaseException | None = problem
    while seen is not None:
        if isinstance(seen, MemoryError):
            return _OF_ERRNO[errno.ENOMEM]
        if isinstance(seen, OSError) and seen.errno in _OF_ERRNO:
            return _OF_ERRNO[seen.errno]
        said = str(seen)
        if isinstance(seen, RuntimeError) and "can't start new thread" in said:
            return _OF_ERRNO[errno.EAGAIN]
        if isinstance(seen, ImportError) and (
            "failed to map segment" in said or "cannot allocate memory" in said.lower()
        ):
            return _OF_ERRNO[errno.ENOMEM]
        seen = seen.__cause__ or seen.__context__
    return ""
