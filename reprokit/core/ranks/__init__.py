"""Compare what the ranks of a distributed program did, and find the one that differs.

This package imports ``core.records`` and ``core.shared``.
"""
