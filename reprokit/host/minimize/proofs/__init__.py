"""The proof of a program: it fails by itself, in fresh processes, without reprokit.

It imports ``probe`` and ``run``. It must not import the reduction, which uses it.
"""
