"""Make the texts of programs smaller: graphs, syntax trees, and the passes over them.

The package runs no program. It must not import ``core.judge``.
"""
