"""Apply the changes of an ablation step or a remedy to this process.

It imports ``torch_hooks`` and ``results``; it must not import ``simulate``.
"""
