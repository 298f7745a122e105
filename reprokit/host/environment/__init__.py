"""The machine and the interpreter of the target, for a report.

It imports ``run``; it must not import ``probe``.
"""
