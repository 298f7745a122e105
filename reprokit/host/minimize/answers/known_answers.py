"""The answers of a reduction in a file, so that one that was interrupted goes on where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from reprokit.core.judge import same_failure
from reprokit.host.system import files, host_log


class KnownAnswers:
    """Answers by the keys of their programs; each new one is appended to the file at once."""

    def __init__(self, path: Path) -> None:
        """Read the answers of an earlier reduction from ``path``, and open it to append to it."""
        self._answers: dict[str, str] = {}
        self._file: IO[str] | None = None
        for line in files.read_text(path).splitlines():
            with host_log.suppress(ValueError, KeyError, TypeError):  # the last line may be cut
                row = json.loads(line)
                if row.get("forget"):
                    self._forget(str(row.get("key") or ""))
                elif row["answer"] in same_failure.ANSWERS:
                    self._keep(str(row["key"]), row["answer"])
        with host_log.suppress(OSError):
            self._file = path.open("a", encoding="utf-8")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with host_log.suppress(OSError):
                self._file.close()

    def answer_of(self, key: str) -> str | None:
        """Return the answer of a program; None if it is not known."""
        return self._answers.get(key)

    def note(self, key: str, answer: str, **facts: object) -> None:
        """Keep an answer, and write it with facts about the program."""
        self._keep(key, answer)
        self._write({"key": key, "answer": answer, **facts})

    def forget(self, key: str = "") -> None:
        """Forget one answer, or all of them."""
        self._forget(key)
        self._write({"forget": True, "key": key})

    def _forget(self, key: str) -> None:
        if key:
            self._answers.pop(key, None)
        else:
            self._answers.clear()

    def _keep(self, key: str, answer: str) -> None:
        if answer != same_failure.UNRESOLVED:  # a program without an answer may be run again
            self._answers[key] = answer

    def _write(self, row: dict[str, object]) -> None:
        if self._file is not None:
            with host_log.suppress(OSError):  # a full disk must not end the reduction
                self._file.write(json.dumps(row) + "\n")
                self._file.flush()
