"""Merge what several ranks and nodes left into one answer.

This package imports ``reprokit.core`` and, from the host, ``pack`` and ``system``.
"""
