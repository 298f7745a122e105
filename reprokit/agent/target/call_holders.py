"""Find what holds more after some calls than before them, and where it is found.

Each call that leaves an object behind makes something longer: a container, Dynamo's cache, the
autograd graph of a tensor, or a chain of objects. The length of each of them is read before and
after a few calls, and the objects that refer to the one that grew are followed to a name.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import inspect
import itertools
import os
import re
import sys
import time
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from ...core.shared.contract.growth_events import AllocatingLine, GrowingHolder

MAX_HOLDERS, MAX_LINES = 6, 4
MAX_DEPTH, MAX_WIDTH = 12, 24
"""Limits of a search: steps away from the object, and objects that are followed in one step."""
MAX_SEARCH_CPU_S = 15.0
"""Limit of all searches of a process, in CPU seconds."""
MAX_FRAMES = 20
MIN_SHARE = 0.5
"""What grows less often than in each second call is no holder."""
_CONTAINERS = frozenset(
    {list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict}
)
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_SKIPPED = (types.FrameType, types.TracebackType)
_BATCH = 1000
"""How many objects are asked at once for what they refer to."""


def find_holders(
    advance: Callable[[], None], calls: int, names: Collection[str]
) -> tuple[list[GrowingHolder], list[AllocatingLine]]:
    """Do ``calls`` calls with ``advance``; return what grew, and the lines that allocated.

    ``names`` are the types of which there may be more after each call.
    """
    import tracemalloc

    gc.unfreeze()  # what refers to an object may be older than the program
    gc.collect()
    nodes = _nodes_by_tensor()
    sizes = {id(value): len(value) for value in _containers()}
    known = set(map(id, gc.get_objects()))
    cache = {code: len(rows) for code, rows in cache_entries()}
    files = _open_files()
    was_tracing = tracemalloc.is_tracing()
    if not was_tracing:
        tracemalloc.start(MAX_FRAMES)
    try:
        advance()
        gc.collect()
        lines = _allocating_lines(tracemalloc.take_snapshot(), calls) if not was_tracing else []
        search = _Search(ignored=(sizes, known, cache, nodes))
        holders = [*_grown_caches(cache, calls), *_new_files(files, calls)]
        holders += _grown_containers(search, sizes, calls)
        holders += _grown_graphs(search, nodes, calls)
        if not holders:
            holders += _new_objects(search, known, calls, names)
        return holders[:MAX_HOLDERS], lines
    finally:
        if not was_tracing:
            tracemalloc.stop()


def cache_entries() -> Iterator[tuple[types.CodeType, list[Any]]]:
    """Yield each code object that Dynamo has seen, with its entries in Dynamo's cache."""
    frames = sys.modules.get("torch._dynamo.convert_frame")
    if frames is None:
        return
    try:
        from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list
    except ImportError:
        return
    for weak in [*getattr(getattr(frames, "input_codes", None), "seen", ())]:
        code = weak()
        if code is not None and (rows := _debug_get_cache_entry_list(code)):
            yield code, rows


def reachable_nodes(tensor: Any, seen: dict[int, Any], limit: int) -> None:
    """Add the autograd nodes that a tensor keeps to ``seen``, by their ids, up to ``limit``."""
    waiting = [tensor.grad_fn] if tensor.requires_grad and not tensor.is_leaf else []
    while waiting and len(seen) < limit:
        node = waiting.pop()
        if node is not None and id(node) not in seen:
            seen[id(node)] = node
            waiting += [following for following, _ in node.next_functions]


def _nodes_by_tensor() -> dict[int, int]:
    """Return the number of autograd nodes of each tensor that is not a leaf, by its id."""
    import torch

    counts = {}
    with torch._C.DisableTorchFunctionSubclass():
        for value in gc.get_objects():
            if type(value) is torch.Tensor and value.requires_grad and not value.is_leaf:
                seen: dict[int, Any] = {}
                reachable_nodes(value, seen, 10_000)
                counts[id(value)] = len(seen)
    return counts


def _containers() -> Iterator[Any]:
    """Yield all containers. The collector does not know a dictionary that has only numbers and
    texts, but an object that refers to it.
    """
    objects = gc.get_objects()
    for start in range(0, len(objects), _BATCH):
        batch = objects[start : start + _BATCH]
        yield from (value for value in batch if type(value) in _CONTAINERS)
        for value in gc.get_referents(*batch):
            if type(value) is dict and not gc.is_tracked(value):
                yield value


def _allocating_lines(snapshot: Any, calls: int) -> list[AllocatingLine]:
    """Return the lines whose memory is still there, those with most bytes first."""
    rows = [
        AllocatingLine(
            blocks=row.count / calls,
            size=row.size / calls,
            frames=[(f.filename, "", f.lineno) for f in reversed(row.traceback)],
        )
        for row in snapshot.statistics("traceback")
        if row.count >= MIN_SHARE * calls and not _is_ours(row.traceback[-1].filename)
    ]
    return sorted(rows, key=lambda row: -row.size)[:MAX_LINES]


def _grown_caches(before: dict[types.CodeType, int], calls: int) -> Iterator[GrowingHolder]:
    for code, rows in cache_entries():
        grew = (len(rows) - before.get(code, 0)) / calls
        if grew >= MIN_SHARE:
            yield GrowingHolder(
                what="Dynamo's cache",
                path=[f"Dynamo's cache of {_name_of_code(code)}"],
                place=f"{code.co_filename}:{code.co_firstlineno}",
                grew=grew,
                holds="compiled code with its guards",
            )


def _open_files() -> dict[str, str]:
    """Return what each file descriptor of the process refers to."""
    found = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # that of the listing is closed again
                found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _new_files(before: dict[str, str], calls: int) -> Iterator[GrowingHolder]:
    new = collections.Counter(
        target for name, target in _open_files().items() if before.get(name) != target
    )
    for target, count in new.most_common(1):
        if count >= MIN_SHARE * calls:
            yield GrowingHolder(
                what="file descriptor",
                path=[f"file descriptors of {target}"],
                grew=count / calls,
                holds="open file",
            )


def _grown_containers(search: _Search, sizes: dict[int, int], calls: int) -> list[GrowingHolder]:
    grown = [
        value
        for value in _containers()
        if len(value) - sizes.get(id(value), len(value)) >= MIN_SHARE * calls
    ]
    grown = [*{id(value): value for value in grown}.values()]
    search.ignore(grown)
    found = []
    for value in grown[-4 * MAX_HOLDERS :]:
        newest = _newest(value)
        path, place = search.find_path(value)
        if place and _is_ours(place.rpartition(":")[0]):
            continue
        found.append(
            GrowingHolder(
                what=type(value).__name__,
                path=path,
                place=place,
                grew=(len(value) - sizes[id(value)]) / calls,
                holds=type_name(type(newest)),
                made=_where_made(newest),
            )
        )
    return found


def _grown_graphs(search: _Search, before: dict[int, int], calls: int) -> Iterator[GrowingHolder]:
    """Yield the tensor whose autograd graph grew most.

    A tensor that is replaced in each call is new, so its graph is compared with the largest one.
    """
    import torch

    after = _nodes_by_tensor()
    most, largest = max(before.values(), default=0), max(after.values(), default=0)
    if largest - most < MIN_SHARE * calls:
        return
    # not in a loop: the list of all objects would refer to the tensor
    value = next(
        o for o in gc.get_objects() if type(o) is torch.Tensor and after.get(id(o)) == largest
    )
    path, place = search.find_path(value)
    yield GrowingHolder(
        what="autograd graph",
        path=[*path, f"grad_fn, a graph of {largest} nodes"],
        place=place,
        grew=(largest - most) / calls,
        holds="autograd nodes",
        made=_where_made(value),
    )


def _new_objects(
    search: _Search, known: set[int], calls: int, names: Collection[str]
) -> Iterator[GrowingHolder]:
    """Yield who holds the newest object of each type of which there is one more after each call."""
    new = [o for o in gc.get_objects() if id(o) not in known and not _is_a(o, _SKIPPED)]
    by_type = collections.Counter(
        kind for kind in map(type, new) if f"{kind.__module__}.{kind.__qualname__}" in names
    )
    search.ignore(new)
    for kind, count in by_type.most_common(MAX_HOLDERS):
        if count < MIN_SHARE * calls:
            break
        newest = next(o for o in reversed(new) if type(o) is kind)
        path, place = search.find_path(newest)
        if place or len(path) > 1:
            yield GrowingHolder(
                what="chain of objects",
                path=path,
                place=place,
                grew=count / calls,
                holds=type_name(kind),
                made=_where_made(newest),
            )


def _newest(container: Any) -> Any:
    """Return the element that was added last; of a set, any."""
    with contextlib.suppress(RuntimeError, IndexError, StopIteration):
        if _is_a(container, dict):
            return next(reversed(container.values()))
        return next(iter(container)) if _is_a(container, set) else container[-1]
    return None


def _where_made(value: object) -> list[tuple[str, str, int]]:
    import tracemalloc

    trace = tracemalloc.get_object_traceback(value)
    return [(f.filename, "", f.lineno) for f in reversed(trace)] if trace else []


def _is_ours(file: str) -> bool:
    return file.startswith(_OURS)


def type_name(kind: type) -> str:
    """Return the name of a type, with its module unless that is ``builtins``."""
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


def _name_of_code(code: types.CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


class _Search:
    """Follows the objects that refer to an object to one with a name."""

    def __init__(self, ignored: Sequence[object]) -> None:
        self._ends = time.process_time() + MAX_SEARCH_CPU_S
        self._modules = {id(vars(m)): n for n, m in [*sys.modules.items()] if _is_module(m)}
        self._ignored = {id(self.__dict__), id(self), *map(id, ignored)}

    def ignore(self, value: object) -> None:
        """Leave an object of our own out of all paths."""
        self._ignored.add(id(value))

    def find_path(self, value: object) -> tuple[list[str], str]:
        """Return the way from a name to an object, and the ``FILE:LINE`` of the name."""
        links: dict[int, Any] = {}
        level, kept = [value], [value]  # all are kept, so that no id is used twice
        self._ignored |= {id(links), id(kept)}
        while level and len(kept) < MAX_DEPTH * MAX_WIDTH and time.process_time() < self._ends:
            children = {id(child): child for child in level}
            self._ignored |= {id(children), id(level)}
            found = gc.get_referrers(*level)
            self._ignored.add(id(found))
            level = [o for o in found if self._may_follow(o) and id(o) not in links]
            level = [o for o in level if o is not value][:MAX_WIDTH]
            for referrer in level:
                links[id(referrer)] = next(
                    c for c in gc.get_referents(referrer) if id(c) in children
                )
            kept += level
            # a chain of objects of one type has its name at its end
            named = [
                o
                for o in level
                if (id(o) in self._modules or type(o) is not type(value)) and self._has_name(o)
            ]
            if named:
                first = min(named, key=_is_of_torch)
                return self._describe(first, links, value)
            level = [o for o in level if not _is_a(o, (type, types.ModuleType))]
        if len(kept) == 1:
            return [f"a {type_name(type(value))} that no Python object refers to"], ""
        return self._describe(kept[-1], links, value)

    def _may_follow(self, value: Any) -> bool:
        if id(value) in self._ignored or _is_a(value, _SKIPPED):
            return False
        if _is_a(value, types.GeneratorType):
            return not _is_ours(value.gi_code.co_filename)
        return True

    def _has_name(self, value: Any) -> bool:
        if id(value) in self._modules or _is_a(value, (type, types.ModuleType)):
            return True
        if _is_a(value, types.FunctionType):
            return not _is_ours(value.__code__.co_filename)
        return _is_object_with_name(value)

    def _describe(self, start: Any, links: dict[int, Any], end: object) -> tuple[list[str], str]:
        first = self._modules.get(id(start))
        place = ""
        parts: list[str] = []
        current = start
        while current is not end:
            child = links[id(current)]
            if _is_a(current, types.FunctionType) and child is current.__closure__:
                child = links[id(child)]
            step = _edge(current, child)
            if first is not None and current is start:
                parts.append(f"{first}{step}")
                place = _place_of_global(first, step.removeprefix("."))
            elif current is start:
                name, place = _name_and_place(current)
                is_function = _is_a(current, types.FunctionType) and step
                parts += [f"{step} of {name}"] if is_function else [name, step]
            else:
                parts.append(step)
            current = child
        # the objects of a chain have the same name
        return [part for part, _ in itertools.groupby(filter(None, parts))], place


def _is_module(value: object) -> bool:
    return type(value) is types.ModuleType


def _is_a(value: object, kinds: type | tuple[type, ...]) -> bool:
    """As ``isinstance``, which would run code of the program: a proxy has its own ``__class__``."""
    return issubclass(type(value), kinds)


def _is_of_torch(value: Any) -> bool:
    name: Any = type(value).__module__
    if _is_a(value, (type, types.FunctionType)):
        name = value.__module__
    if type(value) is dict:
        name = value.get("__name__")
    return str(name).partition(".")[0] == "torch"


def _is_object_with_name(value: Any) -> bool:
    """Whether an object is of a class of the program, or a module of torch.nn."""
    kind = type(value)
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None) or ""
    if kind.__module__ in ("builtins", "collections") or not file or _is_ours(file):
        return False
    return bool(kind.__dict__.get("__module__")) and _has_attributes(value)


def _has_attributes(value: Any) -> bool:
    with contextlib.suppress(Exception):
        return bool(object.__getattribute__(value, "__dict__"))
    return False


def _name_and_place(value: Any) -> tuple[str, str]:
    if _is_a(value, types.FunctionType):
        code = value.__code__
        return f"function {value.__name__}", f"{code.co_filename}:{code.co_firstlineno}"
    if _is_a(value, types.ModuleType):
        return f"module {value.__name__}", f"{getattr(value, '__file__', '')}:1"
    kind = value if _is_a(value, type) else type(value)
    name = type_name(kind)
    place = ""
    with contextlib.suppress(Exception):
        place = f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    return (f"class {name}" if _is_a(value, type) else f"an object of {name}"), place


def _edge(parent: Any, child: Any) -> str:
    """Return how ``parent`` refers to ``child``; empty if that says nothing."""
    if _is_a(parent, (types.CellType, type)):
        return ""
    if _is_a(parent, types.FunctionType):
        for name, cell in zip(parent.__code__.co_freevars, parent.__closure__ or (), strict=False):
            if child is cell:
                return f"closure variable {name}"
        return "defaults" if child in (parent.__defaults__, parent.__kwdefaults__) else ""
    if _is_a(parent, dict):
        key = next((key for key, value in [*parent.items()] if value is child), None)
        return f".{key}" if type(key) is str and key.isidentifier() else "[...]"
    if _is_a(parent, (list, tuple, set, frozenset, collections.deque)):
        return "[...]"
    with contextlib.suppress(Exception):
        attributes = object.__getattribute__(parent, "__dict__")
        if attributes is child:
            return ""
        key = next((key for key, value in attributes.items() if value is child), None)
        if key is not None:
            return f".{key}"
    return f"({type_name(type(parent))})"


def _place_of_global(module: str, name: str) -> str:
    """Return the ``FILE:LINE`` that assigns a global variable, or the file without a line."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file:
        return ""
    with contextlib.suppress(OSError, UnicodeDecodeError), open(file, encoding="utf-8") as text:
        for number, row in enumerate(text, 1):
            if re.match(rf"{re.escape(name)}\s*(:[^=]*)?=", row):
                return f"{file}:{number}"
    return f"{file}:1"
