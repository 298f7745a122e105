"""Why a program does not advance: causes of hangs, waiting outside the compiler, ranks.

It imports ``core.judge.stacks``; it must not import ``core.judge.responsible``.
"""
