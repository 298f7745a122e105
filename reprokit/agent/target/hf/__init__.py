"""Build targets ``hf:TYPE``: a model of transformers from its configuration, with random weights.

It imports transformers in the interpreter of the target. It must not import ``torch_hooks``.
"""
