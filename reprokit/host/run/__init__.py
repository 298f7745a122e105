"""One execution of a target: start it, end it, and read what it left.

It imports ``request``, ``watch`` and ``system``; it must not run a second execution.
"""
