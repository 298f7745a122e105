"""Compare what the ranks of a distributed program did, and find the one that differs.

This package imports only ``reprokit.core.shared``.
"""
