"""How a program is run without torch.compile: its compile calls give back what they were given.

``TORCH_COMPILE_DISABLE`` alone does not do: with ``fullgraph=True`` torch then raises that it found
no compiled frames.
"""

from __future__ import annotations

PATCH = """\
def plain(model=None, *args, **kwargs):
    return (lambda function: function) if model is None else model
torch.compile = plain
torch.nn.Module.compile = lambda self, *args, **kwargs: None
"""
"""Source text that is executed where ``torch`` is imported."""

PRELUDE = f"""\
import runpy, sys, torch
{PATCH}
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""For ``python -c PRELUDE FILE``."""

VARIABLES = {"TORCH_COMPILE_DISABLE": "1"}
"""What keeps the other ways into the compiler shut."""
