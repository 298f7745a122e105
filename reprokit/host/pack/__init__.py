"""What leaves the machine: the pack, the issue, and the reader of packs from strangers.

It imports ``minimize`` and ``report``; it must not import ``pipeline``.
"""
