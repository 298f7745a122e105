"""Recognise exceptions that come from a limit of the machine or the user, and not from a defect."""

from __future__ import annotations

import errno

_ERRNO_WORDS = {
    errno.EMFILE: "too many files are open (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.EAGAIN: "no more processes or threads may be started (ulimit -u)",
    errno.ENOMEM: "memory ran out (ulimit -v, or the machine's own)",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "a file reached its size limit (ulimit -f)",
}


def limit_in(problem: BaseException) -> str:
    """Return the limit that an exception reports, in words; empty if it is about no limit."""
    seen: BaseException | None = problem
    while seen is not None:
        if isinstance(seen, MemoryError):
            return _ERRNO_WORDS[errno.ENOMEM]
        if isinstance(seen, OSError) and seen.errno in _ERRNO_WORDS:
            return _ERRNO_WORDS[seen.errno]
        message = str(seen)
        if isinstance(seen, RuntimeError) and "can't start new thread" in message:
            return _ERRNO_WORDS[errno.EAGAIN]
        if isinstance(seen, ImportError) and (
            "failed to map segment" in message or "cannot allocate memory" in message.lower()
        ):
            return _ERRNO_WORDS[errno.ENOMEM]
        seen = seen.__cause__ or seen.__context__
    return ""
