"""Compare the results of runs of one program, and decide which of them is wrong.

Numbers are compared as in PyTorch's own accuracy check (``torch._dynamo.utils.same``). Two results
are equal if they are within the tolerance of their type, or if the root mean square distance of the
compiled result from a float64 run is at most a factor times that of the eager result.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypedDict

import torch

from ...core.shared.contract import result_events
from ...core.shared.result_comparison import MISSING, NOTHING, OF_STATE, ROLES
from ..record import journal, process_start

MAX_JOURNALED = 20
"""Limit of differences in the journal."""
RELATIVE_FLOOR = 1e-5
"""A distance below this share of the size of the reference is no error; a tenth of the 1e-4 of
``same``.
"""
FACTORS = ((10, 10.0), (500, 8.0), (1000, 3.0), (math.inf, 2.0))
"""How much further from float64 than eager a compiled result may be, by the largest number of
elements: the error of a few elements varies more, as in ``same``.
"""
BLIND_TOLERANCE = {
    "torch.float16": 2e-2,
    "torch.bfloat16": 6e-2,
    "torch.float64": 1e-7,
    "torch.complex128": 1e-7,
}
"""Without a float64 run: relative to the size of the result; 1e-3 for other types. A smaller
difference is ``unclear``: it is one wrong element of millions, or noise.
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

Side: TypeAlias = Literal["compiled", "eager", "unknown", "unclear"]
_SIDES: tuple[Side, ...] = ("compiled", "unknown", "unclear", "eager")
"""The most important first."""
LeafKey: TypeAlias = tuple[int, str]
"""The number of a call, and the name of a leaf."""


class ResultRow(TypedDict, total=False):
    """One leaf of the results of a run."""

    call: int
    name: str
    alias: str
    """The argument that shares its memory; empty if none does."""
    is_random: bool
    tensor: torch.Tensor | None
    value: str
    """Of a leaf that is not a tensor."""
    dtype: str
    shape: list[int]
    stride: list[int]
    device: str


ResultRows: TypeAlias = dict[LeafKey, ResultRow]


class DifferenceRow(TypedDict, total=False):
    """The fields of ``result_comparison.Difference``, as JSON values."""

    call: int
    name: str
    what: str
    side: Side
    expected: str
    got: str
    reference: str
    index: list[int]
    count: int
    total: int
    max_abs: float | str
    mean_abs: float | str
    max_relative: float | str


class ResultFile(TypedDict):
    """The contents of a file ``ROLE.pt``."""

    rows: list[ResultRow]
    skipped: dict[Literal["calls", "tensors"], int]
    """How many of each were not recorded."""
    raised: dict[int, str]
    """Number of a call that raised -> the type of its exception."""
    has_raised: bool
    """Whether an exception ended the run."""


def journal_differences(folder: str) -> None:
    """Compare the runs whose results are in ``folder``, and journal the result as ``compared``.

    Nothing happens while the results of eager or compiled code are missing.
    """
    files = {role: _load_file(folder, role) for role in ROLES}
    eager, compiled, again, wide, repeated = (
        None if (file := files[role]) is None else index_rows(file["rows"]) for role in ROLES
    )
    if eager is None or compiled is None:
        return
    raised = [(file := files[role]) is not None and file["has_raised"] for role in ROLES[:2]]
    differences = find_differences(eager, compiled, wide or {}, *raised)
    _name_exceptions(differences, "expected", files["eager"])
    _name_exceptions(differences, "got", files["compiled"])
    unsteady = [d["name"] for d in find_differences(eager, again, {})] if again is not None else []
    changing = (
        [d["name"] for d in find_differences(compiled, repeated, {}) if d["side"] != "unclear"]
        if repeated is not None
        else []
    )
    differences.sort(key=lambda d: _SIDES.index(d["side"]))
    journal.write_event(
        result_events.Compared(
            differences=[dict(d) for d in differences[:MAX_JOURNALED]],
            count=len(differences),
            leaves=len(eager),
            tensors=sum(r["tensor"] is not None for r in eager.values()),
            is_random=any(r["is_random"] for r in eager.values()),
            unsteady=unsteady[:MAX_JOURNALED],
            changing=changing[:MAX_JOURNALED],
            has_again=again is not None,
            has_reference=wide is not None,
            skipped_calls=_skipped_count(files, "calls"),
            skipped_tensors=_skipped_count(files, "tensors"),
            ranks=process_start.rank_if_several(),
        )
    )


def _load_file(folder: str, role: str) -> ResultFile | None:
    path = os.path.join(folder, f"{role}.pt")
    if not os.path.exists(path):
        return None
    file: ResultFile = torch.load(path, weights_only=True)
    return file


def index_rows(rows: Iterable[ResultRow]) -> ResultRows:
    """Return the rows by their keys."""
    return {(r["call"], r["name"]): r for r in rows}


def _skipped_count(
    files: Mapping[str, ResultFile | None], kind: Literal["calls", "tensors"]
) -> int:
    """Return how many calls or tensors were not compared, because one side did not record them."""
    return max(
        int(file["skipped"][kind])
        for role in ("eager", "compiled")
        if (file := files[role]) is not None
    )


def find_differences(
    eager: ResultRows,
    compiled: ResultRows,
    wide: ResultRows,
    has_eager_raised: bool = False,
    has_compiled_raised: bool = False,
) -> list[DifferenceRow]:
    """Return the differences in the order of the calls, each with the side that is wrong.

    ``wide`` are the results of the float64 run, or empty. If one side made fewer calls, because an
    exception ended it, also in the last call, only the calls of both are compared, and not the end.
    """
    eager, compiled = (
        _rows_to_compare(eager, compiled, has_compiled_raised),
        _rows_to_compare(compiled, eager, has_eager_raised),
    )
    differences = [
        _difference(key, MISSING, "unknown", expected=NOTHING, got=_describe_row(row))
        for key, row in compiled.items()
        if key not in eager
    ]
    for key, row in eager.items():
        compiled_row = compiled.get(key)
        if compiled_row is None:
            differences.append(
                _difference(key, MISSING, "unknown", expected=_describe_row(row), got=NOTHING)
            )
            continue
        with contextlib.suppress(NotImplementedError):  # a type of tensor that cannot be compared
            if difference := _compare_rows(key, row, compiled_row, wide.get(key)):
                differences.append(difference)
    return differences


def _name_exceptions(
    differences: Iterable[DifferenceRow], side: Literal["expected", "got"], file: ResultFile | None
) -> None:
    """Add the exceptions of the calls without a result to what one side gives."""
    for row in differences:
        kind = file["raised"].get(row["call"]) if file is not None else None
        if kind and row[side] == NOTHING:
            row[side] = f"{NOTHING} (it raises {kind})"


def _rows_to_compare(rows: ResultRows, others: ResultRows, have_others_raised: bool) -> ResultRows:
    """Return the rows that the other side has, or would have if its results were the same."""
    last, other_last = (max((call for call, _ in some), default=-1) for some in (rows, others))
    if not others or (last == other_last and not have_others_raised):
        return rows
    last = min(last, other_last)
    # the exception may have come before the backward pass of the last call
    return {
        key: row
        for key, row in rows.items()
        if 0 <= key[0] < last
        or (key[0] == last and (key in others or not key[1].startswith(OF_STATE)))
    }


def _compare_rows(
    key: LeafKey, eager: ResultRow, compiled: ResultRow, wide: ResultRow | None
) -> DifferenceRow | None:
    for field in ("value", "dtype", "shape"):
        expected, got = eager.get(field), compiled.get(field)
        if expected != got and not (field == "value" and _is_close(expected, got)):
            return _difference(key, field, "unknown", expected=str(expected), got=str(got))
    a, b = eager["tensor"], compiled["tensor"]
    if a is None or b is None:
        return None
    has_reference = wide and not eager["is_random"] and wide.get("shape") == eager.get("shape")
    reference = wide["tensor"] if wide and has_reference else None
    if a.numel() and (difference := _compare_numbers(key, a, b, reference)):
        return difference
    if _relevant_strides(eager) != _relevant_strides(compiled):
        return _difference(
            key,
            "stride",
            "unknown",
            expected=str(tuple(eager["stride"])),
            got=str(tuple(compiled["stride"])),
        )
    if eager["alias"] != compiled["alias"]:
        return _difference(
            key,
            "aliasing",
            "unknown",
            expected=eager["alias"] or "memory of its own",
            got=compiled["alias"] or "memory of its own",
        )
    return None


def _is_close(expected: Any, got: Any) -> bool:
    with contextlib.suppress(TypeError, ValueError):
        return math.isclose(float(expected), float(got), rel_tol=1e-5)
    return False


def _compare_numbers(
    key: LeafKey, a: torch.Tensor, b: torch.Tensor, reference: torch.Tensor | None
) -> DifferenceRow | None:
    """Compare tensors of one type and shape; ``reference`` is the float64 run's, or None."""
    if not (a.is_floating_point() or a.is_complex()):
        bad = a != b
        if not bad.any():
            return None
        if reference is not None and reference.dtype == a.dtype and not torch.equal(reference, a):
            return None  # they depend on rounding: the float64 run differs from eager too
        side: Side = "compiled" if reference is not None else "unknown"
        return _numeric_difference(key, "integers", side, a, b, reference, bad)
    rtol, atol = TOLERANCE.get(str(a.dtype), (1e-2, 1e-2))
    a64, b64 = _widen(a), _widen(b)
    r64 = (
        _widen(reference)
        if reference is not None and (reference.is_floating_point() or reference.is_complex())
        else None
    )
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
            return _numeric_difference(key, what, side, a, b, reference, bad)
    is_finite = torch.isfinite(a64) & torch.isfinite(b64)
    zero = torch.zeros((), dtype=a64.dtype)
    x, y = torch.where(is_finite, a64, zero), torch.where(is_finite, b64, zero)
    bad = (x - y).abs() > atol + rtol * x.abs()
    if bad.any():
        finite_reference = (
            None if r64 is None else torch.where(is_finite & torch.isfinite(r64), r64, zero)
        )
        wrong = _wrong_side(str(a.dtype), x, y, finite_reference)
        if wrong == "noise":
            return None
        return _numeric_difference(key, "values", wrong, a, b, reference, bad)
    if r64 is not None and a.is_floating_point():
        bad = (
            (x == 0)
            & (y == 0)
            & (r64 == 0)
            & (torch.signbit(a) != torch.signbit(b))
            & (torch.signbit(r64) == torch.signbit(a))
        )
        if bad.any():
            return _numeric_difference(key, "signed-zero", "compiled", a, b, reference, bad)
    return None


def _is_alike(
    test: Callable[[torch.Tensor], torch.Tensor], a: torch.Tensor, b: torch.Tensor
) -> torch.Tensor:
    """Where both are NaN, or both are infinite with one sign, or neither is."""
    return (test(a) == test(b)) & (~test(a) | (a == b) | (a != a))


def _wrong_side(
    dtype: str, a: torch.Tensor, b: torch.Tensor, reference: torch.Tensor | None
) -> Side | Literal["noise"]:
    """Return which of two results is wrong, or ``noise`` if both are near enough to the reference.

    Without a reference the result is ``unknown``, or ``unclear`` if the difference may be noise.
    """

    def rms(t: torch.Tensor) -> float:
        return float(t.abs().square().mean().sqrt())

    if reference is None:
        is_small = rms(a - b) <= BLIND_TOLERANCE.get(dtype, 1e-3) * max(rms(a), 1e-30)
        return "unclear" if is_small else "unknown"
    factor = next(f for limit, f in FACTORS if a.numel() <= limit)
    factor = max(factor, 3.0) if dtype in ("torch.float16", "torch.bfloat16") else factor
    floor = max(RELATIVE_FLOOR * rms(reference), TOLERANCE.get(dtype, (0.0, 1e-5))[1])
    of_eager, of_compiled = rms(a - reference), rms(b - reference)
    if of_compiled > factor * of_eager + floor:
        return "compiled"
    return "eager" if of_eager > factor * of_compiled + floor else "noise"


def _numeric_difference(
    key: LeafKey,
    what: str,
    side: Side,
    a: torch.Tensor,
    b: torch.Tensor,
    reference: torch.Tensor | None,
    bad: torch.Tensor,
) -> DifferenceRow:
    x, y = _widen(a), _widen(b)
    gap = torch.where(bad, (x - y).abs(), torch.zeros((), dtype=torch.float64))
    relative = torch.where(bad, gap / x.abs(), torch.zeros((), dtype=torch.float64))
    worst = int(
        torch.where(bad, torch.nan_to_num(gap, nan=math.inf), torch.full((), -1.0))
        .flatten()
        .argmax()
    )
    index = [int(i) for i in torch.unravel_index(torch.tensor(worst), a.shape)] if a.dim() else []
    expected, got = _element_text(a, worst), _element_text(b, worst)
    return {
        **_difference(key, what, side, expected=expected, got=got),
        "count": int(bad.sum()),
        "total": a.numel(),
        "index": index,
        "max_abs": _json_number(gap.max()),
        "mean_abs": _json_number(gap.mean()),
        "max_relative": _json_number(relative.max()),
        "reference": _element_text(reference, worst) if reference is not None else "",
    }


def _difference(key: LeafKey, what: str, side: Side, expected: str, got: str) -> DifferenceRow:
    return {
        "call": key[0],
        "name": key[1],
        "what": what,
        "side": side,
        "expected": expected,
        "got": got,
    }


def _widen(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.complex128 if t.is_complex() else torch.float64)


def _element_text(t: torch.Tensor, index: int) -> str:
    return repr(t.flatten()[index].item())


def _json_number(t: torch.Tensor) -> float | str:
    value = float(t)
    return value if math.isfinite(value) else repr(value)


def _describe_row(row: ResultRow) -> str:
    return str(row.get("value") or f"{row.get('dtype')} {tuple(row.get('shape') or ())}")


def _relevant_strides(row: ResultRow) -> list[int]:
    """Return the strides of the dimensions with more than one element; none for an empty tensor."""
    shape, stride = row.get("shape") or (), row.get("stride") or ()
    if 0 in shape:
        return []
    return [step for size, step in zip(shape, stride, strict=False) if size != 1]
