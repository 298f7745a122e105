"""Combine sampled stacks into one tree that counts each frame below its caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Dump, ThreadStack
from reprokit.host.report.report_model import FlameNode

MAX_NODES = 1500
MAX_DEPTH = 90
MAX_HOT_FRAMES = 12


class HotFrame(TypedDict):
    """A frame in which samples end."""

    name: str
    place: str
    samples: int
    """Samples with this frame as the innermost."""


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
    best = one_dump_each(dumps)
    for dump in best:
        for thread in dump.threads:
            if is_service(thread) or not thread.frames:
                continue
            who = thread_name(dump.pid, thread, names)
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


def one_dump_each(dumps: Iterable[Dump]) -> list[Dump]:
    """Return one dump for each process and round, preferably that of py-spy."""
    chosen: dict[tuple[int, int], Dump] = {}
    for dump in dumps:
        key = (dump.number, dump.pid)
        if dump.threads and (key not in chosen or dump.tool == "py-spy"):
            chosen[key] = dump
    return list(chosen.values())


def thread_name(pid: int, thread: ThreadStack, names: Mapping[int, str]) -> str:
    """Return the name of a thread for people; a main thread has the name of its process."""
    process = names.get(pid, f"process {pid}")
    return process if thread.is_main else f"{process}, {thread.thread}"


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


def collapse_chains(node: FlameNode) -> tuple[list[FlameNode], list[FlameNode]]:
    """Return the chain of frames that begins with ``node``, and the children of its last frame.

    Each frame of a chain but the last has one child, with the same samples. Processes and the root
    have no place, and are not parts of chains.
    """
    chain = [node]
    while node["place"] and len(node["children"]) == 1:
        (child,) = node["children"]
        if child["samples"] != node["samples"]:
            break
        chain.append(child)
        node = child
    return chain, node["children"]


def hot_frames(node: FlameNode) -> list[HotFrame]:
    """Return the frames in which most samples end, the most frequent first."""
    found: dict[tuple[str, str], int] = {}

    def add(node: FlameNode) -> None:
        own = node["samples"] - sum(child["samples"] for child in node["children"])
        if own > 0 and node["place"]:
            key = node["name"], node["place"]
            found[key] = found.get(key, 0) + own
        for child in node["children"]:
            add(child)

    add(node)
    rows = sorted(found.items(), key=lambda row: -row[1])[:MAX_HOT_FRAMES]
    return [{"name": name, "place": place, "samples": count} for (name, place), count in rows]
