"""Sampled stacks as one tree: how often each frame was seen below its caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reprokit.core.judge.hangs.thread_facts import is_service
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.dumps import Dump

MOST_NODES = 1500
MOST_DEPTH = 90
Model = dict[str, Any]


def stack_tree(dumps: Iterable[Dump], names: Mapping[int, str]) -> Model:
    """``{"name", "place", "samples", "children"}``; one child of the root a process, threads that
    only serve left out.
    """
    root: Model = {"name": "all samples", "place": "", "samples": 0, "children": {}}
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
            if len(path) > MOST_DEPTH:  # a recursion: its start, and where it stands
                gone = len(path) - MOST_DEPTH
                path = [*path[:10], (f"... {gone} frames ...", ""), *path[10 + gone :]]
            node = root
            node["samples"] += 1
            for name, place in path:
                node = node["children"].setdefault(
                    name, {"name": name, "place": place, "samples": 0, "children": {}}
                )  # the line of the first sample: a frame that moves between lines is one frame
                node["samples"] += 1
    left = [MOST_NODES]
    return _listed(root, left)


def _by_one_tool(dumps: list[Dump]) -> list[Dump]:
    """One dump for each process and round: py-spy's, else faulthandler's."""
    chosen: dict[tuple[int, int], Dump] = {}
    for dump in dumps:
        key = (dump.number, dump.pid)
        if dump.threads and (key not in chosen or dump.tool == "py-spy"):
            chosen[key] = dump
    return list(chosen.values())


def _listed(node: Model, left: list[int]) -> Model:
    """Children as a list, the most frequent first, as long as there is room."""
    children = []
    for child in sorted(node["children"].values(), key=lambda c: -c["samples"]):
        if left[0] <= 0:
            break
        left[0] -= 1
        children.append(_listed(child, left))
    return {**node, "children": children}


def tree_depth(node: Model) -> int:
    """Levels of the tree below ``node``, itself included."""
    return 1 + max((tree_depth(child) for child in node["children"]), default=0)
