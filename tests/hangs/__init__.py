"""Hangs made to order, for tests and for ``benchmarks/hangs.py``."""
