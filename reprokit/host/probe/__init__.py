"""One question about one program: does this candidate fail in the same way?

It imports ``run`` and ``watch``; it must not import ``minimize``, which asks many.
"""
