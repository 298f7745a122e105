"""The pack and the issue, which leave the machine, and the reader of packs from strangers.

This package imports ``minimize`` and ``report``, and must not import ``pipeline``.
"""
