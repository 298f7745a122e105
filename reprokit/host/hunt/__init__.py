"""Looks for failures that nobody has reported: generated programs, through the nightly pipeline.

It must not import ``cli``.
"""
