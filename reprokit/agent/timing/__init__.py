"""Time warm calls of a target, eager and compiled in turns, and say which parts of a compiled call
take the time.

It imports ``record``, ``target`` and ``torch_hooks``; it must not import ``experiments``.
"""
