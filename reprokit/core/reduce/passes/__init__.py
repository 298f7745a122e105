"""The reduction passes: each is a function of a text and a predicate, and returns a smaller text.

The package imports ``core.reduce.ast_edits`` and no other module of ``core.reduce``.
"""
