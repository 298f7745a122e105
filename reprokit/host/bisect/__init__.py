"""Find the version of torch in which a failure started: versions, environments and the search.

It imports ``pack`` and ``minimize``; it must not import ``pipeline``.
"""
