"""Who is responsible for a failure: torch, the program's own code, or the simulation.

It imports ``core.judge.stacks``; it must not import ``core.judge.hangs``.
"""
