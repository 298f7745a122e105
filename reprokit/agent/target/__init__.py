"""Build the target: a factory, a model of the zoo, a model of transformers, several ranks.

It imports ``agent.record``; it must not import ``torch_hooks``.
"""
