"""Build the target: a factory, a model of the zoo or of transformers, on one or several ranks.

It imports ``agent.record``; it must not import ``torch_hooks``.
"""
