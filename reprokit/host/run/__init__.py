"""One execution of a target: start it, end it, and read its run directory.

This package imports ``request``, ``watch`` and ``system``, and must not start a second execution.
"""
