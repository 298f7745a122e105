"""Hooks on Dynamo's recompiles, recompile limits and graph breaks."""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract import events
from ..record import graph_recorder, journal, program_code
from .symbols import compile_id, has_symbol, wrap_symbol

_OF_NUMBER = re.compile(r"(?:len\()?[LG]\[.+ == -?\d\S*")
"""A guard on the value of a number or on the length of a container."""
_LOCAL = re.compile(r"\bL\[['\"](\w+)['\"]\]")
_FILE = re.compile(r"(?<=\s# )[^#\n]+?(?=:\d+ in \S)")
"""The file of the user's line in a reason."""
MAX_DETAIL_CHARS = 1000, 3000
"""Limits of the message of a graph break: its head, and its tail, where Dynamo's hints are."""
MAX_ALSO = 20
"""Limit of the guards that are journaled for one recompile, after the one that Dynamo names."""


def failing_numbers(entry: Any, frame: Any) -> list[str]:
    """Return the guards of a compile on numbers that fail now.

    Dynamo names only the first guard that fails. The numbers are read from dictionaries, so that no
    code of the program runs.
    """
    manager = getattr(entry, "guard_manager", None)
    glob = (getattr(manager, "global_scope", None) or {}).get("G")
    roots = {"L": getattr(frame, "f_locals", None), "G": glob}
    found = []
    for part in getattr(manager, "code_parts", None) or ():
        if not _OF_NUMBER.fullmatch(part):
            continue
        try:
            test = ast.parse(part, mode="eval").body
            if isinstance(test, ast.Compare) and len(test.ops) == 1:
                expected = ast.literal_eval(test.comparators[0])
                if _number_at(test.left, roots) != expected:
                    found.append(_LOCAL.sub(r"\1", part))
        except (SyntaxError, ValueError, LookupError, AttributeError, TypeError):
            continue
        if len(found) == MAX_ALSO:
            break
    return found


def _number_at(node: ast.expr, roots: Mapping[str, Any]) -> float:
    """Return the number at a path, or the length of the container there.

    Raises:
        LookupError, AttributeError, TypeError: it has none, or code of the program computes it.
    """
    is_length = isinstance(node, ast.Call) and len(node.args) == 1
    value = _value_at(node.args[0] if isinstance(node, ast.Call) and is_length else node, roots)
    if is_length and type(value) in (dict, list, tuple):
        return len(value)
    if is_length or type(value) not in (bool, float, int):
        raise TypeError(type(value))
    return float(value) if type(value) is float else int(value)


def _value_at(node: ast.expr, roots: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        return roots[node.id]
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner = _value_at(node.value, roots)
        if type(owner) in (dict, list, tuple):
            return owner[node.slice.value]
    elif isinstance(node, ast.Attribute):
        return object.__getattribute__(_value_at(node.value, roots), "__dict__")[node.attr]
    raise LookupError(ast.dump(node)[:100])


def _with_whole_path(reason: str) -> str:
    return _FILE.sub(lambda match: graph_recorder.whole_path(match[0]), reason)


def hook_recompiles() -> None:
    """Journal each recompile with its reasons."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def get_and_maybe_log_recompilation_reasons(*args: Any, **kwargs: Any) -> Any:
            reasons = real(*args, **kwargs)
            frame = kwargs.get("frame") or (args[1] if len(args) > 1 else None)
            code = getattr(frame, "f_code", None)
            entries = args[0] if args else kwargs.get("cache_entries")
            # earlier versions of torch pass the newest compile, which links to the others
            newest = entries[0] if isinstance(entries, list) and entries else entries
            first = str(reasons[0]) if reasons else ""
            also: list[str] = []
            with contextlib.suppress(Exception):  # the guards of another version of torch
                also = [g for g in failing_numbers(newest, frame) if f": {g}" not in first]
            journal.write_event(
                events.Recompile(
                    function=getattr(code, "co_name", None),
                    file=getattr(code, "co_filename", None),
                    line=getattr(code, "co_firstlineno", None),
                    cid=compile_id(),
                    reasons=[
                        _with_whole_path(cuts.cut_head(str(r), 2000)) for r in list(reasons)[:20]
                    ],
                    also=also,
                    caller=program_code.users_place(),
                )
            )
            return reasons

        return get_and_maybe_log_recompilation_reasons

    wrap_symbol("torch._dynamo.convert_frame:get_and_maybe_log_recompilation_reasons", make_hook)


def hook_recompile_limits() -> None:
    """Journal each function that Dynamo no longer compiles because it recompiled too many times."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def exceeds_recompile_limit(*args: Any, **kwargs: Any) -> Any:
            exceeded, limit = result = real(*args, **kwargs)
            if exceeded:
                journal.write_event(events.RecompileLimit(limit=str(limit), cid=compile_id()))
            return result

        return exceeds_recompile_limit

    wrap_symbol("torch._dynamo.convert_frame:exceeds_recompile_limit", make_hook)


def hook_graph_breaks() -> None:
    """Journal each graph break.

    ``phases_and_graphs.hook_failures`` journals a break after which Dynamo compiles nothing of the
    function.
    """

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def log_graph_break(*args: Any, **kwargs: Any) -> Any:
            # before torch 2.11 Dynamo passes no exception, but calls this function in its handler
            error = kwargs.get("exc", sys.exc_info()[1])
            is_break = "exc" in kwargs or type(error).__name__ == "Unsupported"
            if is_break and not getattr(error, "logged", False):
                note_break(error)
            return real(*args, **kwargs)

        return log_graph_break

    module = "torch._dynamo.symbolic_convert"
    before_2_10 = f"{module}:log_graph_break"
    method = f"{module}:InstructionTranslatorBase.log_graph_break"
    wrap_symbol(before_2_10 if has_symbol(before_2_10) else method, make_hook)


def note_break(error: Any, is_given_up: bool = False) -> None:
    """Journal one graph break. ``error`` is Dynamo's exception."""
    message = str(getattr(error, "msg", "") or error).strip()
    rows = list(getattr(error, "real_stack", None) or ())
    where = f"{rows[-1].filename}:{rows[-1].lineno}" if rows else ""
    # a break that has caused other breaks is the first line
    reason = (message.splitlines() or [type(error).__name__])[0]
    journal.write_event(
        events.GraphBreakFound(
            reason=cuts.cut_head(reason, 300),
            detail=cuts.cut_middle(message, *MAX_DETAIL_CHARS),
            where=where,
            caller=program_code.users_place(rows),
            is_given_up=is_given_up,
        )
    )


HOOKS = (hook_recompiles, hook_recompile_limits, hook_graph_breaks)
