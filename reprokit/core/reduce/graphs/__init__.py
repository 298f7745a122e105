"""Recorded graphs: their units, the programs of some units, and the values of their inputs.

The package imports ``core.shared`` and no other part of ``core.reduce``.
"""
