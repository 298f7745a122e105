"""From a target to its pack, as one list of steps.

It imports all that steps need; it must not import ``bisect`` or ``nightly``.
"""
