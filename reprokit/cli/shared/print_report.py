"""Print the report of a pack: cause, remedies, evidence, phases, measures and stacks.

A stranger may have written it, so each value is checked and the output is limited.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reprokit.cli.shared.out import RESULTS, one_line
from reprokit.core.judge.stacks.location import plural

BAR_CHARS = 40
MAX_FRAMES = 12
MAX_STACKS = 8
MAX_LINE_CHARS, MAX_LABEL_CHARS = 2_000, 40
MAX_ROWS = 200
"""Limit of printed rows of one list of a report."""
MAX_POINTS = 10_000
OWN_PLACE = "<agent>"
"""The begin of the places of reprokit's own frames."""
_LEVELS = "▁▂▃▄▅▆▇█"
_PLAIN_LEVELS = ".:-=+*#@"


def print_report(model: dict[str, Any], is_whole: bool = False) -> None:
    """Print ``report.json`` of a pack.

    Threads with the same stack, and frames of reprokit, are folded, and long stacks are cut, unless
    the report is printed as a whole.
    """
    _line(model.get("reason"), "bold")
    for text in (model.get("explain"), *(f"also {_text(row)}" for row in _rows(model, "also"))):
        if text:
            _line(text)
    _print_head(model)
    for name, value in [*_dict(model.get("work")).items()][:MAX_ROWS]:
        _line(f"{name}: {_text(value)}")
    for answer in _dicts(model, "answers"):
        _line(f"{_text(answer.get('question'))}: {_text(answer.get('answer'))}")
    for side in _dicts(model, "waits"):
        _line(
            f"- {_text(side.get('who'))} at {_text(side.get('place'))}: {_text(side.get('code'))}"
        )
    for row in (*_rows(model, "path"), *_rows(model, "evidence")):
        _line(f"- {_text(row)}")
    print_table(_dict(model.get("growth")))
    if sentence := _dict(model.get("ablation")).get("sentence"):
        _line(sentence)
    timeline = _dict(model.get("timeline"))
    _phases(_dicts(timeline, "phases"))
    for series in _dicts(timeline, "series"):
        values = [
            p[1] for p in _rows(series, "points", MAX_POINTS) if isinstance(p, list) and len(p) == 2
        ]
        numbers = _finite(values)
        if numbers:
            name = one_line(_text(series.get("name")), MAX_LABEL_CHARS)
            RESULTS.print_line(
                f"{name:<18} {_spark(numbers)} at most {_amount(max(numbers), series.get('unit'))}"
            )
    stacks = _dicts(model, "stacks")
    if is_whole:
        for stack in stacks:
            _print_stack(f"{_text(stack.get('who'))}: {_text(stack.get('told'))}", _frames(stack))
    else:
        _print_folded(stacks)


def _line(text: object, style: str = "") -> None:
    RESULTS.print_line((one_line(_text(text)), style))


def _print_head(model: dict[str, Any]) -> None:
    """Print the line of the user, what avoids the failure, and why nothing is to be filed."""
    head = _dict(model.get("head"))
    if line := head.get("users_line"):
        _line(f"your line: {_text(line)}")
    ways = [_text(way) for way in _rows(head, "avoids")[:MAX_STACKS]]
    if ways:
        _line(f"avoids it: {'; '.join(ways)}")
    if advice := head.get("advice"):
        _line(f"avoids it, not tried: {_text(advice)}")
    if not_filed := model.get("not_filed"):
        _line(f"do not file it: {_text(not_filed)}")


def _print_folded(stacks: list[dict[str, Any]]) -> None:
    """Print each different stack once, with the threads that have it."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for stack in stacks:
        groups.setdefault(tuple(_frames(stack)), []).append(stack)
    for frames, alike in [*groups.items()][:MAX_STACKS]:
        who = ", ".join(_text(stack.get("who")) for stack in alike[:3])
        more = f" and {len(alike) - 3} more" if len(alike) > 3 else ""
        same = " have one stack" if len(alike) > 1 else ""
        shown = [frame for frame in frames if OWN_PLACE not in frame]
        _print_stack(f"{who}{more}{same}: {_text(alike[0].get('told'))}", shown[:MAX_FRAMES])
        if len(shown) > MAX_FRAMES:
            RESULTS.print_line(f"    ... {len(shown) - MAX_FRAMES} more")
    if len(groups) > MAX_STACKS:
        RESULTS.print_line(f"{plural(len(groups) - MAX_STACKS, 'more stack')}; --page prints all")


def _frames(stack: dict[str, Any]) -> list[str]:
    rows = [row for row in _rows(stack, "frames", MAX_POINTS) if isinstance(row, dict)]
    return [
        one_line(
            f"{_text(row.get('function'))}  {_text(row.get('place'))}"
            f"{' (moved)' * bool(row.get('has_moved'))}"
        )
        for row in rows
    ]


def _print_stack(title: str, frames: Iterable[str]) -> None:
    _line(title, "bold")
    for frame in frames:
        RESULTS.print_line(f"    {frame}")


def print_table(growth: dict[str, Any]) -> None:
    """Print the measurements of ``growth.json`` for each size."""
    for row in _rows(growth, "table"):
        RESULTS.print_line(_text(row)[:MAX_LINE_CHARS])


def _phases(rows: list[dict[str, Any]]) -> None:
    seconds = [(_text(r.get("phase")), s) for r in rows for s in _finite([r.get("seconds")])]
    most = max((s for _, s in seconds), default=0.0)
    for phase, spent in seconds[:12]:
        mark = "#" if RESULTS.is_plain else "█"
        bar = mark * max(1, round(spent / most * BAR_CHARS)) if most > 0 else ""
        RESULTS.print_line(f"{one_line(phase, MAX_LABEL_CHARS)[:16]:<16} {spent:>8.2f} s  {bar}")


def _finite(values: list[Any]) -> list[float]:
    """Return the numbers of a stranger's list that can be drawn."""
    return [float(v) for v in values if isinstance(v, (int, float)) and abs(v) < 1e15]


def _spark(values: list[float]) -> str:
    levels = _PLAIN_LEVELS if RESULTS.is_plain else _LEVELS
    width = min(len(values), BAR_CHARS)
    chosen = [values[i * len(values) // width] for i in range(width)]
    most = max(max(chosen), 1e-9)
    return "".join(
        levels[min(int(max(v, 0.0) / most * (len(levels) - 1)), len(levels) - 1)] for v in chosen
    )


def _amount(value: float, unit: object) -> str:
    return (
        f"{value / 1e6:.0f} MB"
        if unit == "bytes"
        else f"{value:.0%}"
        if unit == "share"
        else f"{value:.1f}"
    )


def _text(value: object) -> str:
    """Return a text, or the head and the tail of a long one, so that cleaning it is fast."""
    text = (
        value
        if isinstance(value, str)
        else str(value)
        if isinstance(value, (int, float))
        else _of_holder(value)
    )
    return (
        text
        if len(text) <= MAX_LINE_CHARS
        else f"{text[: MAX_LINE_CHARS // 2]} ... {text[-MAX_LINE_CHARS // 2 :]}"
    )


def _of_holder(value: object) -> str:
    return (
        "none"
        if value is None
        else f"{type(value).__name__} of {len(value)}"
        if isinstance(value, (list, dict))
        else ""
    )


def _rows(holder: dict[str, Any], name: str, limit: int | None = None) -> list[Any]:
    value = holder.get(name)
    return value[: MAX_ROWS if limit is None else limit] if isinstance(value, list) else []


def _dicts(holder: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for row in _rows(holder, name) if isinstance(row, dict)]


def _dict(value: Iterable[Any] | None) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
