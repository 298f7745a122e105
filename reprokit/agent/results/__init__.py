"""Record the results of compiled calls, and compare those of two runs.

It imports ``agent.record``; it must not import ``torch_hooks``.
"""
