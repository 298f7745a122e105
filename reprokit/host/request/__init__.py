"""The user's request: the target, the options, and the command line that repeats it.

This package imports only ``host.system``, and must not start a target.
"""
