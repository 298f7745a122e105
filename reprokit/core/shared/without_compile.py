"""Run a program without torch.compile: its compile calls return their argument.

``TORCH_COMPILE_DISABLE`` alone is not enough: with ``fullgraph=True`` torch then raises an
exception, because it finds no compiled frames.
"""

from __future__ import annotations

PATCH = """\
def plain(model=None, *args, **kwargs):
    return (lambda function: function) if model is None else model
torch.compile = plain
torch.nn.Module.compile = lambda self, *args, **kwargs: None
"""
"""Source text that is executed after ``torch`` is imported."""

PRELUDE = f"""\
import runpy, sys, torch
{PATCH}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The program of ``python -c PRELUDE FILE``."""

VARIABLES = {"TORCH_COMPILE_DISABLE": "1"}
"""Environment variables that disable all other uses of the compiler."""
