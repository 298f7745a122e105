"""Kinds of option values that several commands take."""

from __future__ import annotations

from typing import Any

import click


class _Seconds(click.types.FloatParamType):
    """A finite number above 0."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = super().convert(value, param, ctx)
        if not 0 < seconds < float("inf"):
            self.fail("give a number of seconds above 0", param, ctx)
        return float(seconds)


SECONDS = _Seconds()
