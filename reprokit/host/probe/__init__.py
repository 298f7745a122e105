"""Run one candidate, and compare its failure with a signature.

This package imports ``run`` and ``watch``, and must not import ``minimize``, which starts many
probes.
"""
