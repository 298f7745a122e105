"""Compare what two runs of one program left, and say which of them is wrong.

Numbers are compared as PyTorch's own accuracy check does (``torch._dynamo.utils.same``): equal
within the tolerance of their type, or else no further from a float64 run, in root mean square, than
eager is, times a factor.
"""

from __future__ import annotations

import contextlib
import math
import os
from typing import Any

from ...core.shared.contract import events
from ...core.shared.result_comparison import ROLES
from ..record import journal, process_start

MOST_TOLD = 20
RELATIVE_FLOOR = 1e-5
"""Share of the size of the reference below which a distance from it is no error; a tenth of the
1e-4 of ``same``.
"""
FACTORS = ((10, 10.0), (500, 8.0), (1000, 3.0), (math.inf, 2.0))
"""How much further from float64 than eager compiled code may be, by the number of elements: few are
noisy, as in ``same``.
"""
BLIND_TOLERANCE = {
    "torch.float16": 2e-2,
    "torch.bfloat16": 6e-2,
    "torch.float64": 1e-7,
    "torch.complex128": 1e-7,
}
"""Where there is no float64 run to judge by: relative to the size of the result; 1e-3 for other
types. What differs less is ``unclear``: one wrong element of millions, or noise.
"""
TOLERANCE = {
    "torch.float16": (1e-3, 1e-5),
    "torch.bfloat16": (1.6e-2, 1e-5),
    "torch.float64": (1e-7, 1e-7),
    "torch.complex128": (1e-7, 1e-7),
    "torch.float32": (1.3e-6, 1e-5),
    "torch.complex64": (1.3e-6, 1e-5),
}
"""Relative and absolute, as in ``torch.testing.assert_close``."""

Row = dict[str, Any]


def journal_what_differs(folder: str) -> None:
    """Compare what lies in ``folder`` as soon as both sides do, and journal it as ``compared``."""
    import torch

    told = {role: _load(torch, folder, role) for role in ROLES}
    eager, compiled, again, wide = (_rows(told[role]) for role in ROLES)
    if eager is None or compiled is None:
        return
    found = differences(torch, eager, compiled, wide or {})
    unsteady = (
        [d["name"] for d in differences(torch, eager, again, {})] if again is not None else []
    )
    order = ("compiled", "unknown", "unclear", "eager")
    rows = sorted(found, key=lambda d: order.index(d["side"]))
    journal.write(
        events.Compared(
            differences=rows[:MOST_TOLD],
            count=len(rows),
            leaves=len(eager),
            tensors=sum(r["tensor"] is not None for r in eager.values()),
            is_random=any(r["is_random"] for r in eager.values()),
            unsteady=unsteady[:MOST_TOLD],
            has_again=again is not None,
            has_reference=wide is not None,
            skipped_calls=_skipped(told, "calls"),
            skipped_tensors=_skipped(told, "tensors"),
            ranks=process_start.ranks(),
        )
    )


def _load(torch: Any, folder: str, role: str) -> dict[str, Any] | None:
    path = os.path.join(folder, f"{role}.pt")
    return dict(torch.load(path, weights_only=True)) if os.path.exists(path) else None


def _rows(told: dict[str, Any] | None) -> dict[tuple[int, str], Row] | None:
    return None if told is None else {(r["call"], r["name"]): r for r in told["rows"]}


def _skipped(told: dict[str, dict[str, Any] | None], what: str) -> int:
    """How many one side left out; what either left out is not compared."""
    return max(
        int(one["skipped"][what])
        for role in ("eager", "compiled")
        if (one := told[role]) is not None
    )


def differences(
    torch: Any,
    eager: dict[tuple[int, str], Row],
    compiled: dict[tuple[int, str], Row],
    wide: dict[tuple[int, str], Row],
) -> list[dict[str, Any]]:
    """What differs, in the order of the calls; each with the side that is wrong: compiled, eager,
    unknown or unclear.
    """
    found = [
        _difference(key, "missing", "unknown", expected="nothing", got=_words(row))
        for key, row in compiled.items()
        if key not in eager
    ]
    for key, one in eager.items():
        other = compiled.get(key)
        if other is None:
            found.append(
                _difference(key, "missing", "unknown", expected=_words(one), got="nothing")
            )
            continue
        with contextlib.suppress(NotImplementedError):  # a type of tensor that cannot be compared
            if difference := _differ(torch, key, one, other, wide.get(key)):
                found.append(difference)
    return found


def _differ(
    torch: Any, key: tuple[int, str], one: Row, other: Row, wide: Row | None
) -> dict[str, Any] | None:
    for what in ("value", "dtype", "shape"):
        if one.get(what) != other.get(what) and not _is_close_value(one, other, what):
            return _difference(
                key, what, "unknown", expected=str(one.get(what)), got=str(other.get(what))
            )
    a, b = one["tensor"], other["tensor"]
    if a is None or b is None:
        return None
    r = (
        wide["tensor"]
        if wide and not one["is_random"] and wide.get("shape") == one.get("shape")
        else None
    )
    if a.numel() and (difference := _numbers(torch, key, a, b, r)):
        return difference
    if _steps(one) != _steps(other):
        return _difference(
            key,
            "stride",
            "unknown",
            expected=str(tuple(one["stride"])),
            got=str(tuple(other["stride"])),
        )
    if one["alias"] != other["alias"]:
        return _difference(
            key,
            "aliasing",
            "unknown",
            expected=one["alias"] or "memory of its own",
            got=other["alias"] or "memory of its own",
        )
    return None


def _is_close_value(one: Row, other: Row, what: str) -> bool:
    with contextlib.suppress(KeyError, ValueError):
        return what == "value" and math.isclose(
            float(one["value"]), float(other["value"]), rel_tol=1e-5
        )
    return False


def _numbers(torch: Any, key: tuple[int, str], a: Any, b: Any, r: Any) -> dict[str, Any] | None:
    """Compare tensors of one type and shape, ``r`` being the float64 run's, or None."""
    if not (a.is_floating_point() or a.is_complex()):
        bad = a != b
        if not bad.any():
            return None
        if r is not None and r.dtype == a.dtype and not torch.equal(r, a):
            return None  # rounding decides them: float64 gives others than eager, too
        return _numeric(
            torch, key, "integers", "compiled" if r is not None else "unknown", a, b, r, bad
        )
    rtol, atol = TOLERANCE.get(str(a.dtype), (1e-2, 1e-2))
    a64, b64 = _wide(torch, a), _wide(torch, b)
    r64 = _wide(torch, r) if r is not None and (r.is_floating_point() or r.is_complex()) else None
    for what, test in (("nan", torch.isnan), ("inf", torch.isinf)):
        bad = ~_is_alike(test, a64, b64)
        if bad.any():
            side = "unknown"
            if r64 is not None:
                is_eager_right, is_compiled_right = (
                    _is_alike(test, a64, r64)[bad],
                    _is_alike(test, b64, r64)[bad],
                )
                side = "compiled" if (is_eager_right & ~is_compiled_right).any() else "eager"
            return _numeric(torch, key, what, side, a, b, r, bad)
    is_finite = torch.isfinite(a64) & torch.isfinite(b64)
    zero = torch.zeros((), dtype=a64.dtype)
    x, y = torch.where(is_finite, a64, zero), torch.where(is_finite, b64, zero)
    bad = (x - y).abs() > atol + rtol * x.abs()
    if bad.any():
        side = _side(
            torch,
            str(a.dtype),
            x,
            y,
            None if r64 is None else torch.where(is_finite & torch.isfinite(r64), r64, zero),
        )
        return None if side == "noise" else _numeric(torch, key, "values", side, a, b, r, bad)
    if r64 is not None and a.is_floating_point():
        bad = (
            (x == 0)
            & (y == 0)
            & (r64 == 0)
            & (torch.signbit(a) != torch.signbit(b))
            & (torch.signbit(r64) == torch.signbit(a))
        )
        if bad.any():
            return _numeric(torch, key, "signed-zero", "compiled", a, b, r, bad)
    return None


def _is_alike(test: Any, one: Any, other: Any) -> Any:
    """Where both are NaN, or infinite to the same side, or neither is."""
    return (test(one) == test(other)) & (~test(one) | (one == other) | (one != one))


def _side(torch: Any, dtype: str, a: Any, b: Any, r: Any) -> str:
    """Which of two results is wrong; ``noise`` when both are as far from the reference as such
    floats are.

    Without a reference: ``unknown``, or ``unclear`` for what may be noise.
    """

    def rms(t: Any) -> float:
        return float(t.abs().square().mean().sqrt())

    if r is None:
        is_small = rms(a - b) <= BLIND_TOLERANCE.get(dtype, 1e-3) * max(rms(a), 1e-30)
        return "unclear" if is_small else "unknown"
    factor = next(f for most, f in FACTORS if a.numel() <= most)
    factor = max(factor, 3.0) if dtype in ("torch.float16", "torch.bfloat16") else factor
    floor = max(RELATIVE_FLOOR * rms(r), TOLERANCE.get(dtype, (0.0, 1e-5))[1])
    of_eager, of_compiled = rms(a - r), rms(b - r)
    if of_compiled > factor * of_eager + floor:
        return "compiled"
    return "eager" if of_eager > factor * of_compiled + floor else "noise"


def _numeric(
    torch: Any, key: tuple[int, str], what: str, side: str, a: Any, b: Any, r: Any, bad: Any
) -> dict[str, Any]:
    x, y = _wide(torch, a), _wide(torch, b)
    gap = torch.where(bad, (x - y).abs(), torch.zeros((), dtype=torch.float64))
    relative = torch.where(bad, gap / x.abs(), torch.zeros((), dtype=torch.float64))
    place = int(
        torch.where(bad, torch.nan_to_num(gap, nan=math.inf), torch.full((), -1.0))
        .flatten()
        .argmax()
    )
    index = [int(i) for i in torch.unravel_index(torch.tensor(place), a.shape)] if a.dim() else []
    told = _difference(key, what, side, expected=_one(a, place), got=_one(b, place))
    told.update(
        count=int(bad.sum()),
        total=a.numel(),
        index=index,
        max_abs=_number(gap.max()),
        mean_abs=_number(gap.mean()),
        max_relative=_number(relative.max()),
        reference=_one(r, place) if r is not None else "",
    )
    return told


def _difference(
    key: tuple[int, str], what: str, side: str, expected: str, got: str
) -> dict[str, Any]:
    return {
        "call": key[0],
        "name": key[1],
        "what": what,
        "side": side,
        "expected": expected,
        "got": got,
    }


def _wide(torch: Any, t: Any) -> Any:
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def _one(t: Any, place: int) -> str:
    return repr(t.flatten()[place].item())


def _number(t: Any) -> float | str:
    value = float(t)
    return value if math.isfinite(value) else repr(value)


def _words(row: Row) -> str:
    return str(row.get("value") or f"{row.get('dtype')} {tuple(row.get('shape') or ())}")


def _steps(row: Row) -> list[int]:
    """Strides that matter: those of dimensions with more than one element, unless there are no
    elements at all.
    """
    shape, stride = row.get("shape") or (), row.get("stride") or ()
    if 0 in shape:
        return []
    return [step for size, step in zip(shape, stride, strict=False) if size != 1]
