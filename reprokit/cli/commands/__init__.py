"""One module for each command; ``cli.main`` imports a command when it is called.

A command must not print by itself: ``cli.shared.out`` prints.
"""
