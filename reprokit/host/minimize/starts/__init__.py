"""The programs that a reduction begins with: the target's own source, and the recorded graphs.

It must not import the reduction.
"""
