"""Experiments after the first run: ablation, remedies, eager, simulation and kernels.

It imports ``probe`` and ``run``; it must not import ``minimize``.
"""
