"""Watch a service for days, and report when it locks up.

This package imports ``reprokit.core`` and, from the host, ``attach``, ``watch`` and ``system``.
"""
