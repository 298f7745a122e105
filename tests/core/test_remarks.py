"""Compiler warnings are reported once each."""

from __future__ import annotations

from reprokit.core.records.remarks.compiler_warnings import group_warnings
from reprokit.core.shared.contract.events import WarningShown

SHAPES = "torch.fx.experimental.symbolic_shapes"


def test_the_same_warning_of_every_symbol_is_one_remark() -> None:
    """Numbers and symbols differ, but the warning is the same. Symbolic shapes are first, and the
    user's own warnings are left out.
    """
    events = [
        WarningShown(
            category="torch._inductor.utils", message="Not enough SMs to use max_autotune_gemm mode"
        ),
        *(
            WarningShown(
                category=SHAPES, message=f"_maybe_guard_rel() was called on non-relation s{n} > {n}"
            )
            for n in range(9)
        ),
        WarningShown(category=SHAPES, message="Ignored guard s0 == 4"),
        WarningShown(category="UserWarning", message="mine", file="/home/me/train.py"),
        WarningShown(
            category="UserWarning", message="theirs", file="/x/torch/_inductor/lowering.py"
        ),
        WarningShown(),
    ]
    remarks = group_warnings(events)
    assert [(r.about, r.count) for r in remarks] == [
        ("symbolic shapes", 9),
        ("symbolic shapes", 1),
        ("torch._inductor.utils", 1),
        ("UserWarning", 1),
    ]
    assert str(remarks[0]).startswith(
        "the compiler warned 9 times (symbolic shapes): _maybe_guard_rel()"
    )
