"""Hooks on Inductor's caches of compiled graphs: which entries are looked up, found and written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from ...core.shared import cuts
from ...core.shared.contract.cache_events import CacheUsed
from ..record import journal
from .symbols import wrap_symbol

FX_GRAPH, AOT_AUTOGRAD = "fx-graph", "aot-autograd"
_FX_CACHE = "torch._inductor.codecache:FxGraphCache"
_AOT_MODULE = "torch._functorch._aot_autograd.autograd_cache"
_last_key: list[Any] = []
"""The key, and its parts, that the last look-up of AOTAutograd's cache computed."""


def hook_fx_graph_cache() -> None:
    """Journal each look-up of a graph in the FX graph cache."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def load_with_key(key: str, debug_lines: list[str], *args: Any, **kwargs: Any) -> Any:
            result = real(key, debug_lines, *args, **kwargs)
            info = result[1]
            _journal_use(
                FX_GRAPH,
                str(info.get("cache_state")),
                key,
                debug_lines,
                str(info.get("cache_status_detailed") or ""),
            )
            return result

        return load_with_key

    wrap_symbol(f"{_FX_CACHE}.load_with_key", make_hook)


def hook_fx_graph_writes() -> None:
    """Journal each entry that is written to the FX graph cache."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def write_to_local_cache(key: str, content: bytes) -> Any:
            result = real(key, content)
            _journal_use(FX_GRAPH, "stored", key)
            return result

        return write_to_local_cache

    wrap_symbol(f"{_FX_CACHE}._write_to_local_cache", make_hook)


def hook_autograd_keys() -> None:
    """Note each key of AOTAutograd's cache for the look-up that computes it."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def autograd_cache_key(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            _last_key[:] = result
            return result

        return autograd_cache_key

    wrap_symbol(f"{_AOT_MODULE}:autograd_cache_key", make_hook)


def hook_autograd_cache() -> None:
    """Journal each look-up of AOTAutograd's cache."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def try_load(*args: Any, **kwargs: Any) -> Any:
            from torch._dynamo.utils import counters

            before = dict(counters["aot_autograd"])
            _last_key.clear()
            result = real(*args, **kwargs)
            for outcome in ("hit", "miss", "bypass"):
                name = f"autograd_cache_{outcome}"
                if counters["aot_autograd"].get(name, 0) > before.get(name, 0):
                    key, lines = _last_key or ("", [])
                    _journal_use(AOT_AUTOGRAD, outcome, key, lines)
            return result

        return try_load

    wrap_symbol(f"{_AOT_MODULE}:AOTAutogradCache.try_load", make_hook)


def hook_autograd_writes() -> None:
    """Journal each entry that is written to AOTAutograd's cache."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def save(key: str, *args: Any, **kwargs: Any) -> Any:
            from torch._dynamo.utils import counters

            before = counters["aot_autograd"]["autograd_cache_saved"]
            result = real(key, *args, **kwargs)
            if counters["aot_autograd"]["autograd_cache_saved"] > before:
                _journal_use(AOT_AUTOGRAD, "stored", key)
            return result

        return save

    wrap_symbol(f"{_AOT_MODULE}:AOTAutogradCache.save", make_hook)


def hook_precompiled_code() -> None:
    """Journal each look-up of the code and the guards that Dynamo kept of a function."""

    def make_hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def load(fn: Any, *args: Any, **kwargs: Any) -> Any:
            result = real(fn, *args, **kwargs)
            name = str(getattr(fn, "__qualname__", ""))
            key = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()
            _journal_use("dynamo", "miss" if result is None else "hit", key)
            return result

        return load

    wrap_symbol("torch._dynamo.package:DynamoCache.load", make_hook)


DYNAMO_HOOKS = (hook_precompiled_code,)
"""Hooks that are needed before Inductor is imported."""
HOOKS = (
    hook_fx_graph_cache,
    hook_fx_graph_writes,
    hook_autograd_keys,
    hook_autograd_cache,
    hook_autograd_writes,
)


def _journal_use(
    cache: str, outcome: str, key: str, lines: list[str] | None = None, detail: str = ""
) -> None:
    journal.write_event(
        CacheUsed(
            cache=cache,
            outcome=outcome,
            key=key,
            parts=_parts_of_key(lines or []),
            detail=cuts.cut_head(detail, 200),
        )
    )


def _parts_of_key(lines: list[str]) -> dict[str, str]:
    """Return a digest of each part of a key by its name.

    A line is ``[HASH] NAME: VALUE`` or ``[HASH] NAME[KEY]: VALUE``. The value may be private, so
    only its hash is kept.
    """
    hashes: dict[str, str] = {}
    for line in lines:
        head, _, rest = line.partition("] ")
        name = rest.split(":", 1)[0].split("[", 1)[0].strip()
        if head.startswith("[") and name.isidentifier():
            hashes[name] = hashes.get(name, "") + head
    return {name: hashlib.sha256(text.encode()).hexdigest()[:8] for name, text in hashes.items()}
