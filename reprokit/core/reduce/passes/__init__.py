"""The reduction passes: each is a function of a text and a predicate, and gives a smaller text.

It imports ``core.reduce.ast_edits``, and no other module of ``core.reduce``.
"""
