"""Note the functions that a program registers as implementations of its own operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..record.definitions import own_operators
from . import symbols


def note_implementations() -> None:
    """Hook ``Library.impl``, which all functions of ``torch.library`` call."""

    def hook(real: Callable[..., Any]) -> Callable[..., Any]:
        def impl(
            self: Any, op_name: Any, fn: Any, dispatch_key: str = "", *args: Any, **kwargs: Any
        ) -> Any:
            done = real(self, op_name, fn, dispatch_key, *args, **kwargs)
            own_operators.note_implementation(self, op_name, fn, dispatch_key)
            return done

        return impl

    symbols.wrap_symbol("torch.library:Library.impl", hook)
