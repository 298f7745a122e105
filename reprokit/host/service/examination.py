"""Examine a process that may have locked up, with ``reprokit attach`` in a process of its own.

So the memory and the defects of the examination do not affect the watch.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.host.system import deletion, files, host_log
from reprokit.host.system.child_commands import own_command

MAX_RESULT_BYTES = 16 << 20
MAX_SECONDS = 120.0
"""Beyond the limit of a lock-up; a longer examination is stopped."""


@dataclass(frozen=True)
class Finding:
    """The answer of an examination."""

    is_hang: bool
    phase: str
    cause: str
    reason: str
    signature: str
    title: str
    pack: str
    """The path of the pack; empty if none was written."""

    @property
    def identity(self) -> tuple[str, str]:
        """What two sightings of the same lock-up share."""
        return self.signature, self.cause


class Examination:
    """One run of ``reprokit attach``."""

    def __init__(
        self, pid: int, still_s: float, stall_s: float, ports: Collection[int], output: Path
    ) -> None:
        self.output = output
        self._result = output.with_suffix(".json")
        limit_s = max(min(stall_s, still_s), 1.0)
        self._deadline = time.monotonic() + limit_s + MAX_SECONDS
        self._errors = output.with_suffix(".txt")
        words = ["--json", "--stall", f"{limit_s:.3f}", "--output-dir", str(output)]
        words += ["--stalled-for", f"{still_s:.3f}"] if still_s else []
        for port in sorted(ports):
            words += ["--port", str(port)]
        with self._result.open("wb") as file, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                own_command("reprokit", "--isolated", "attach", str(pid), *words),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=errors,
            )

    @property
    def has_ended(self) -> bool:
        """Whether the answer is there. An examination that takes too long is stopped."""
        if time.monotonic() > self._deadline:
            self._process.kill()
            self._process.wait()
        return self._process.poll() is not None

    def read_finding(self) -> Finding | str:
        """Return the answer, or why there is none, and delete its files."""
        data: Any = None
        with host_log.suppress(ValueError):
            data = json.loads(files.read_text(self._result, MAX_RESULT_BYTES))
        lines = files.read_text(self._errors).strip().splitlines()
        self._delete_files()
        if not isinstance(data, dict) or not isinstance(data.get("verdict"), dict):
            return lines[-1].removeprefix("reprokit: ") if lines else "it gave no answer"
        verdict, signature = data["verdict"], data.get("signature") or {}
        return Finding(
            verdict.get("kind") == "hang",
            str(verdict.get("phase") or ""),
            str(verdict.get("cause") or ""),
            str(verdict.get("reason") or ""),
            str(signature.get("id") or ""),
            str(signature.get("title") or ""),
            str(data.get("pack") or ""),
        )

    def stop(self) -> None:
        """End an examination whose answer nobody reads."""
        self._process.terminate()
        with host_log.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._delete_files()

    def _delete_files(self) -> None:
        for path in (self._result, self._errors):
            deletion.delete_path(path, inside=path.parent)
