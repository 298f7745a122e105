"""What an ablation step or a remedy changes in this process.

It imports ``torch_hooks`` and ``results``; it must not import ``simulate``.
"""
