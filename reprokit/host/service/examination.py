"""Examine a process that may have locked up, with ``reprokit attach`` in a process of its own.

So the memory and the defects of the examination do not affect the watch.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprokit.host.system import files, host_log

MAX_RESULT_BYTES = 16 << 20


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
        words = ["--json", "--stall", f"{limit_s:.3f}", "--output-dir", str(output)]
        words += ["--stalled-for", f"{still_s:.3f}"] if still_s else []
        for port in sorted(ports):
            words += ["--port", str(port)]
        with self._result.open("wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "reprokit", "--isolated", "attach", str(pid), *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
            )

    @property
    def has_ended(self) -> bool:
        """Whether the answer is there."""
        return self._process.poll() is not None

    def read_finding(self) -> Finding | None:
        """Return the answer, and delete its file; None if there is none."""
        data: Any = None
        with host_log.suppress(ValueError):
            data = json.loads(files.read_text(self._result, MAX_RESULT_BYTES))
        with host_log.suppress(OSError):
            self._result.unlink()
        if not isinstance(data, dict) or not isinstance(data.get("verdict"), dict):
            return None
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
        with host_log.suppress(OSError):
            self._result.unlink()
