"""Nightly runs of a suite, and reports of what is new.

It starts captures as child processes and must not import ``pipeline``.
"""
