"""The targets of ``known_bugs/growing_memory.py`` that ``memory_growth`` measures."""

from __future__ import annotations

from typing import NamedTuple


class PlantedGrowth(NamedTuple):
    """What is right to say about a leak."""

    grows: str
    """A part of what grows."""
    holder: str
    """A part of the path to what holds it; empty if no object of Python holds it."""
    line: str = ""
    """The text of the program's line that makes it; empty if Python does not see it."""
    is_in_eager: bool = False


LEAKS = {
    "closure": PlantedGrowth("bytes of tensors", "kept of", "kept.append("),
    "cache_key": PlantedGrowth("memory blocks", "COUNTED", "COUNTED["),
    "hook": PlantedGrowth("objects of function", "_forward_hooks", "register_forward_hook"),
    "none_falls": PlantedGrowth("references to None", ""),
    "none_kept": PlantedGrowth("references to None", "NOTHINGS", "NOTHINGS"),
    "guard_on_id": PlantedGrowth("entries in Dynamo's cache", "Dynamo's cache of", "def scale"),
    "list_in_operator": PlantedGrowth(
        "bytes of tensors", "KEPT_OUTPUTS", "KEPT_OUTPUTS.append", is_in_eager=True
    ),
    "autograd_graph": PlantedGrowth("nodes of autograd", ".total", is_in_eager=True),
    "cudagraph_pools": PlantedGrowth("bytes of tensors", "POOLS", "POOLS["),
    "descriptors": PlantedGrowth("open file descriptors", "/dev/null"),
    "chain": PlantedGrowth("growing_memory.Node", "LAST", "LAST = Node"),
    "c_heap": PlantedGrowth("bytes on the C heap", ""),
}
HEALTHY = (
    "plain",
    "trained",
    "lru_cache",
    "last_results",
    "several_shapes",
    "batch_norm",
    "recompile_limit",
    "graph_break",
    "dropout",
    "emptied_list",
    "cycles_and_files",
    "ring_of_keys",
)
