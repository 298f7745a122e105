"""The list of steps from a target to its pack.

It imports all that the steps need; it must not import ``bisect`` or ``nightly``.
"""
