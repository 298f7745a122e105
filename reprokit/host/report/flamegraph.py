"""Combine sampled stacks into one tree that counts each frame below its caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Dump
from reprokit.host.report.report_model import FlameNode

MAX_NODES = 1500
MAX_DEPTH = 90


@dataclass
class _Node:
    name: str
    place: str = ""
    samples: int = 0
    children: dict[str, _Node] = field(default_factory=dict)


def stack_tree(dumps: Iterable[Dump], names: Mapping[int, str]) -> FlameNode:
    """Return the tree of the sampled stacks. Each child of the root is a process or a thread;
    service threads are left out.
    """
    root = _Node("all samples")
    best = _by_one_tool(list(dumps))
    for dump in best:
        for thread in dump.threads:
            if is_service(thread) or not thread.frames:
                continue
            who = names.get(dump.pid, f"process {dump.pid}") + (
                "" if thread.is_main else f", {thread.thread}"
            )
            path = [(who, "")]
            path += [
                (f.function, f"{f.file}:{f.line}")
                for f in reversed(fr.normalise_frames(thread.frames))
            ]
            if len(path) > MAX_DEPTH:  # of a recursion, keep the start and the end
                gone = len(path) - MAX_DEPTH
                path = [*path[:10], (f"... {gone} frames ...", ""), *path[10 + gone :]]
            node = root
            node.samples += 1
            for name, place in path:
                # a frame that changes its line is one frame, with the line of the first sample
                node = node.children.setdefault(name, _Node(name, place))
                node.samples += 1
    left = [MAX_NODES]
    return _listed(root, left)


def _by_one_tool(dumps: list[Dump]) -> list[Dump]:
    """Return one dump for each process and round, preferably that of py-spy."""
    chosen: dict[tuple[int, int], Dump] = {}
    for dump in dumps:
        key = (dump.number, dump.pid)
        if dump.threads and (key not in chosen or dump.tool == "py-spy"):
            chosen[key] = dump
    return list(chosen.values())


def _listed(node: _Node, left: list[int]) -> FlameNode:
    """Return the node with its children as a list, the most frequent first, up to ``left``
    nodes.
    """
    children: list[FlameNode] = []
    for child in sorted(node.children.values(), key=lambda c: -c.samples):
        if left[0] <= 0:
            break
        left[0] -= 1
        children.append(_listed(child, left))
    return {
        "name": node.name,
        "place": node.place,
        "samples": node.samples,
        "children": children,
    }


def tree_depth(node: FlameNode) -> int:
    """Return the number of levels of the tree, with that of ``node``."""
    return 1 + max((tree_depth(child) for child in node["children"]), default=0)
