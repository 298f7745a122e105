"""The database of all nightly runs; only this package writes SQL.

It imports ``jobs`` and ``suite``; it must not import ``schedule`` or ``engines``.
"""
