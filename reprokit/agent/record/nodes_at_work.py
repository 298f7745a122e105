"""Find the nodes of a graph on which Inductor worked when it raised an exception."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from ...core.shared.tracebacks import user_line

if TYPE_CHECKING:
    import torch

MAX_NODES = 8
"""Limit of the nodes that are journaled for one exception."""
_INDUCTOR = "torch._inductor"
_BUFFER = re.compile(r"\b(?:buf|op)\d+\b")


def nodes_at_work(error: BaseException) -> list[list[str]]:
    """Return the name and the user's line of each node; empty where no frame of Inductor has one.

    The innermost frame that has a node or an operation of the scheduler counts. If the message
    names one of the operations or its buffer, only its nodes count.
    """
    links = [error]
    while (cause := _cause(links[-1])) is not None and cause not in links:
        links.append(cause)
    for link in reversed(links):
        for frame in _frames(link):
            if not str(frame.f_globals.get("__name__")).startswith(_INDUCTOR):
                continue
            if nodes := list(_nodes_in(frame.f_locals.values(), str(link))):
                rows = ([n.name, user_line(str(n.meta.get("stack_trace") or ""))] for n in nodes)
                return [row for row in rows if row[1]][:MAX_NODES]
    return []


def _cause(error: BaseException) -> BaseException | None:
    inner = getattr(error, "inner_exception", None)
    return inner if isinstance(inner, BaseException) else error.__cause__


def _frames(error: BaseException) -> list[FrameType]:
    """Return the frames of an exception, the innermost first."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    return frames[::-1]


def _nodes_in(values: Iterable[Any], message: str) -> Iterator[torch.fx.Node]:
    values = list(values)
    node_type = sys.modules["torch.fx"].Node
    scheduler = sys.modules.get("torch._inductor.scheduler")
    for value in values:
        if isinstance(value, node_type):
            yield value
            return
    for value in values:
        if scheduler is not None and isinstance(value, scheduler.BaseSchedulerNode):
            operations = [node for node in value.get_nodes() if node.node is not None]
            named = set(_BUFFER.findall(message))
            of_message = [
                node for node in operations if named & {node.get_name(), *node.get_buffer_names()}
            ]
            found: dict[torch.fx.Node, None] = {}
            for node in of_message or operations:
                found.update(dict.fromkeys(getattr(node.node, "origins", ())))
            yield from found
            return
