"""In which torch did a failure start: versions, environments, and the search over them.

It imports ``pack`` and ``minimize``; it must not import ``pipeline``.
"""
