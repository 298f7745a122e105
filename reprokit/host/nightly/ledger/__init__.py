"""The database of all nights; only this package writes SQL.

It imports ``jobs`` and ``suite``; it must not import ``schedule`` or ``engines``.
"""
