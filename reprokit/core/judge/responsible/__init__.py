"""Decide who is responsible for a failure: torch, the program's own code, or the simulation.

The package imports ``core.judge.stacks``, and the ranks of ``core.judge.hangs``. It must not import
``core.judge.verdict``.
"""
