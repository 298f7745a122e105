"""Facts about the machine and the target's interpreter.

This package imports ``run``, and must not import ``probe``.
"""
