"""Make the head of the report: the program, what avoids the failure, the command and the versions.

All texts are redacted by the caller, because a redacted repro must not change again.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Any

from reprokit.core.experiments.ablation import CHANGES
from reprokit.core.experiments.remedies.remedy_table import HIGHER_LIMIT
from reprokit.core.judge import same_failure
from reprokit.host.report.report_model import Version

WITHOUT_COMPILE = "no torch.compile"
MAX_AVOIDING = 8


def ways_to_avoid(ablation: Mapping[str, Any], eager: str) -> list[str]:
    """Return the ablation steps that pass, the smallest change first.

    Changed lines of the program come first, then settings of Dynamo that its message names, a
    statement that is moved out of the compiled function, other modes and switches, and backends, of
    which the one that does most comes first. A higher limit is the last of the switches, because
    the program still compiles as often. ``eager`` is the result without torch.compile, which counts
    if no step ran.
    """
    passing = [s for s in ablation.get("steps", ()) if s["answer"] == same_failure.PASSES]
    switches = [s for s in passing if s["group"] != "backends"]
    switches.sort(key=lambda s: (s["name"] == HIGHER_LIMIT.name, _size_of_change(s)))
    backends = [s["name"] for s in passing if s["group"] == "backends"]
    limit = f"{HIGHER_LIMIT.name} (only the limit)"
    names = [limit if s["name"] == HIGHER_LIMIT.name else s["name"] for s in switches]
    names += reversed(backends)
    if not names and eager == "passes":
        names = [WITHOUT_COMPILE]
    return names[:MAX_AVOIDING]


def _size_of_change(step: Mapping[str, Any]) -> int:
    if step["group"] == CHANGES:
        return 2 if "moves" in step.get("overrides", {}) else 0
    return 1 if step["name"].startswith("torch._dynamo.config.") else 3


def known_versions(facts: Mapping[str, Any]) -> list[Version]:
    """Return the versions of torch and of what it runs on, from the facts of the machine."""

    def named(section: str, key: str) -> object:
        rows = facts.get(section)
        return rows.get(key) if isinstance(rows, Mapping) else None

    python = str(named("python", "version") or "").split(" ")[0]
    rows: Iterable[tuple[str, object]] = (
        ("torch", named("torch", "version") or named("packages", "torch")),
        ("triton", named("packages", "triton")),
        ("Python", python),
        ("CUDA", named("torch", "cuda")),
        ("ROCm", named("torch", "hip")),
        ("system", named("os", "distribution")),
        ("CPU", named("cpu", "model name")),
        *(("GPU", name) for name in _gpu_names(named("gpus", "gpus"))),
    )
    return [{"name": name, "version": str(version)} for name, version in rows if version]


def _gpu_names(gpus: object) -> Iterable[object]:
    names = (
        [g.get("name") for g in gpus if isinstance(g, Mapping)] if isinstance(gpus, list) else []
    )
    return dict.fromkeys(names)


def utc_date(seconds: float) -> str:
    """Return ``YYYY-MM-DD HH:MM UTC`` of seconds since the epoch; empty for 0."""
    if not seconds:
        return ""
    when = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return f"{when:%Y-%m-%d %H:%M} UTC"


def short_paths(text: str, folders: Iterable[str]) -> str:
    """Return a sentence with the paths below ``folders`` relative to them, and those of installed
    packages from the package on. A command would not run any more.
    """
    return relative_to_folders(_INSTALLED.sub("", text), folders)


_INSTALLED = re.compile(r"(?<![^\s'\"=`(])/\S*?/(?:site|dist)-packages/(?=[^\s/])")


def relative_to_folders(text: str, folders: Iterable[str]) -> str:
    """Return a text with the paths below ``folders`` relative to them, for people.

    An empty folder and the root change nothing.
    """
    for folder in folders:
        if below := folder.rstrip("/"):
            text = re.sub(rf"(?<![^\s'\"=`(]){re.escape(below)}/(?=[^\s/])", "", text)
    return text
