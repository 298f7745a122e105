"""Decide who is responsible for a failure: torch, the program's own code, or the simulation.

The package imports ``core.judge.stacks``. It must not import ``core.judge.hangs``.
"""
