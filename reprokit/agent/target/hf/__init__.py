"""Targets ``hf:TYPE``: a model of transformers from its configuration, with random weights.

It imports transformers by name, in the interpreter of the target, and must not import
``torch_hooks``.
"""
