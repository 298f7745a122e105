"""The smallest program with the same failure, and its proof in fresh processes.

It imports ``experiments`` and ``probe``; it must not import ``pack``.
"""
