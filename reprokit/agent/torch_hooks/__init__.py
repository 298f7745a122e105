"""Hooks on private functions of torch: phases, graphs, recompiles, CUDA graphs, logs.

It imports ``agent.record``; it must not import ``simulate`` or ``experiments``.
"""
