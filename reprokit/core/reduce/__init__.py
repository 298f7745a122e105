"""Make programs smaller, as texts: graphs, syntax trees, and the passes over them.

It runs nothing, and must not import ``core.judge``.
"""
