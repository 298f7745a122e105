"""The evidence that a signature is made of, small enough to record: today's rules can sign recorded
runs again.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from reprokit.core.judge import signature
from reprokit.core.judge.stacks import evidence
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.judge.stacks.recent_dumps import only_recent
from reprokit.core.records.dumps import Dump, Raised, ThreadStack
from reprokit.core.records.finding import Signature, Verdict
from reprokit.core.records.observation import Observation
from reprokit.core.shared.contract.serialize import to_json

EVIDENCE_FIELDS = (
    "raised",
    "compile_failures",
    "faults",
    "crash_site",
    "dumps",
    "recompiled",
    "comparison",
    "departs",
    "endless_line",
    "main_pid",
)
MAX_FRAMES = 24
MAX_MESSAGE_CHARS = 3_000
MAX_STDERR_CHARS = 1_500


def evidence_of(verdict: Verdict, seen: Observation) -> dict[str, Any]:
    """Return the evidence of one verdict as JSON, with the names of files that all machines
    share.
    """
    dumps: tuple[Dump, ...] = ()
    if verdict.kind in ("hang", "slow-compile"):
        stacks = evidence.main_stacks(only_recent(seen))
        main = seen.main_pid or 1
        dumps = tuple(
            Dump(
                n,
                "py-spy",
                main,
                (ThreadStack(main, "main", s[:MAX_FRAMES], is_main=True, tid=seen.working_tid),),
            )
            for n, s in enumerate(stacks, 1)
        )
    fault = evidence.fatal_fault(seen)
    small = dataclasses.replace(
        seen,
        raised=_shorten_exception(seen.raised) if seen.raised else None,
        compile_failures=tuple(map(_shorten_exception, seen.compile_failures[-1:])),
        dumps=dumps,
        faults=(
            (dataclasses.replace(fault, frames=fr.normalise_frames(fault.frames)[:MAX_FRAMES]),)
            if fault
            else ()
        ),
        recompiled=seen.recompiled[:1],
    )
    fields = {name: to_json(getattr(small, name)) for name in EVIDENCE_FIELDS}
    fields["stderr_tail"] = seen.stderr_tail[-MAX_STDERR_CHARS:] if verdict.kind == "crash" else ""
    names = ("kind", "phase", "cause", "work")
    return {
        "verdict": {name: to_json(verdict)[name] for name in names},
        "seen": {name: value for name, value in fields.items() if value},
    }


def sign_evidence(recorded: Mapping[str, Any]) -> Signature:
    """Return the signature that today's rules make of recorded evidence."""
    return judge_evidence(recorded)[2]


def judge_evidence(recorded: Mapping[str, Any]) -> tuple[Verdict, Observation, Signature]:
    """Return recorded evidence as records, with the signature that today's rules make of it."""
    verdict = Verdict(reason="", **recorded["verdict"])
    hints = typing.get_type_hints(Observation)
    seen = Observation(
        **{name: _read_json(hints[name], value) for name, value in recorded["seen"].items()}
    )
    return verdict, seen, signature.sign_verdict(verdict, seen)


def _shorten_exception(raised: Raised) -> Raised:
    links = [
        dataclasses.replace(
            link,
            message=link.message[:MAX_MESSAGE_CHARS],
            frames=fr.normalise_frames(link.frames)[:MAX_FRAMES],
        )
        for link in raised.chain
    ]
    return dataclasses.replace(raised, chain=tuple(links))


def _read_json(kind: Any, value: Any) -> Any:
    """Return a record from its JSON."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if value is None or kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _read_json(next(k for k in inside if k is not type(None)), value)
    if origin is tuple:
        return tuple(_read_json(inside[0], item) for item in value)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _read_json(hints[name], field) for name, field in value.items()})  # type: ignore[operator]
    return value
