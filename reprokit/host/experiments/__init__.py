"""Questions beyond the first run: ablation, remedies, eager, simulated, kernels.

It imports ``probe`` and ``run``; it must not import ``minimize``.
"""
