"""Write an expression for a value like one that ``agent/serve/value_recorder.py`` described."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from reprokit.core.reduce.ast_edits import NO_PROGRAM


def expression_of(
    described: Mapping[str, Any], is_fixed: bool = False, is_random: bool = True
) -> ast.expr | None:
    """Return an expression for a value like the recorded one; None if it cannot be written.

    The elements of a tensor are random. With ``is_fixed``, those of a floating-point tensor without
    negative elements are 0, 1, 2 and so on, which is also valid for sorted data, such as corners of
    boxes. Those of an integer tensor are 0, if it may have a zero: some labels are no classes.
    Without ``is_random``, no element is random: compiled code draws other numbers than eager.
    """
    try:
        text = _text_of(described, is_fixed or not is_random, is_random)
        return ast.parse(text, mode="eval").body if text else None
    except NO_PROGRAM:  # the file may be cut
        return None


def can_be_fixed(described: Mapping[str, Any]) -> bool:
    """Return whether a value has a tensor that ``is_fixed`` changes."""
    parts = described.get("parts", ())
    is_changed = bool(described.get("is_nonnegative")) or _is_label(described)
    return is_changed or any(map(can_be_fixed, parts))


def _is_label(described: Mapping[str, Any]) -> bool:
    """Return whether a tensor has different integers, and may have a zero."""
    low, high = described.get("range", (0, 0))
    return bool(low <= 0 < high)


def _text_of(described: Mapping[str, Any], is_fixed: bool, is_random: bool) -> str:
    if "literal" in described or "name" in described:
        return str(described.get("literal", described.get("name")))
    if "parts" in described:
        parts = [_text_of(part, is_fixed, is_random) for part in described["parts"]]
        if not all(parts):
            return ""
        if described["kind"] == "dict":
            keys, values = parts[: len(parts) // 2], parts[len(parts) // 2 :]
            parts = [f"{key}: {value}" for key, value in zip(keys, values, strict=True)]
        written = ", ".join(parts)
        return {"tuple": f"({written},)", "list": f"[{written}]"}.get(
            described["kind"], f"{{{written}}}"
        )
    return _tensor_text(described, is_fixed, is_random) if "shape" in described else ""


def _tensor_text(described: Mapping[str, Any], is_fixed: bool, is_random: bool) -> str:
    sizes, dtype = list(described["shape"]), str(described["dtype"])
    shape = ", ".join(map(str, sizes)) or "()"
    of_type = "" if dtype == "torch.float32" else f", dtype={dtype}"
    if described.get("is_float") and (
        not is_random or (is_fixed and described.get("is_nonnegative"))
    ):
        count = 1
        for size in sizes:
            count *= size
        text = f"torch.arange({float(count)!r}{of_type})"
        text += f".reshape({shape})" if len(sizes) != 1 else ""
    elif described.get("is_float"):
        text = f"torch.randn({shape}{of_type})"
    elif is_fixed and _is_label(described):
        text = f"torch.zeros({shape}, dtype={dtype})"
    elif dtype == "torch.bool":
        text = f"torch.ones({shape}, dtype=torch.bool)"
    else:
        shape = "".join(f"{size}, " for size in sizes)
        low, high = described["range"]
        text = f"torch.randint({low}, {high + 1}, ({shape}), dtype={dtype})"
        text = text if is_random else f"torch.full(({shape}), {low}, dtype={dtype})"
    if described.get("device", "cpu") != "cpu":
        text += f".to({str(described['device'])!r})"
    if described.get("requires_grad"):
        text += ".requires_grad_()"
    return f"{text}.numpy()" if described.get("is_array") else text
