"""What of an observation a signature is made of, small enough to keep: recorded runs can be signed
again by new rules.
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

KEPT = (
    "raised",
    "compile_failures",
    "faults",
    "dumps",
    "recompiled",
    "comparison",
    "departs",
    "endless_line",
    "main_pid",
)
FRAMES, MESSAGE_CHARS = 24, 3_000


def keep(verdict: Verdict, seen: Observation) -> dict[str, Any]:
    """The evidence of one verdict, with files as every machine calls them."""
    dumps: tuple[Dump, ...] = ()
    if verdict.kind in ("hang", "slow-compile"):
        stacks = evidence.main_stacks(only_recent(seen))
        main = seen.main_pid or 1
        dumps = tuple(
            Dump(
                n,
                "py-spy",
                main,
                (ThreadStack(main, "main", s[:FRAMES], is_main=True, tid=seen.working_tid),),
            )
            for n, s in enumerate(stacks, 1)
        )
    fault = evidence.fatal_fault(seen)
    small = dataclasses.replace(
        seen,
        raised=_raised(seen.raised),
        compile_failures=tuple(map(_raised, seen.compile_failures[-1:])),
        dumps=dumps,  # type: ignore[arg-type]
        faults=(
            (dataclasses.replace(fault, frames=fr.normalise_frames(fault.frames)[:FRAMES]),)
            if fault
            else ()
        ),
        recompiled=seen.recompiled[:1],
    )
    told = {name: to_json(getattr(small, name)) for name in KEPT}
    told["stderr_tail"] = seen.stderr_tail[-1_500:] if verdict.kind == "crash" else ""
    about = {k: v for k, v in to_json(verdict).items() if k in ("kind", "phase", "cause", "work")}
    return {"verdict": about, "seen": {k: v for k, v in told.items() if v}}


def sign(told: Mapping[str, Any]) -> Signature:
    """The signature that today's rules give to kept evidence."""
    verdict = Verdict(reason="", **told["verdict"])
    hints = typing.get_type_hints(Observation)
    seen = Observation(**{name: _load(hints[name], value) for name, value in told["seen"].items()})
    return signature.sign(verdict, seen)


def _raised(raised: Raised | None) -> Raised | None:
    if raised is None:
        return None
    links = [
        dataclasses.replace(
            link,
            message=link.message[:MESSAGE_CHARS],
            frames=fr.normalise_frames(link.frames)[:FRAMES],
        )
        for link in raised.chain
    ]
    return dataclasses.replace(raised, chain=tuple(links))


def _load(kind: Any, value: Any) -> Any:
    """A record from its JSON."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if value is None or kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _load(next(k for k in inside if k is not type(None)), value)
    if origin is tuple:
        return tuple(_load(inside[0], one) for one in value)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return kind(**{name: _load(hints[name], one) for name, one in value.items()})  # type: ignore[operator]
    return value
