"""Find out why a program does not advance: causes of hangs, waiting outside the compiler, ranks.

The package imports ``core.judge.stacks``. It must not import ``core.judge.responsible``.
"""
