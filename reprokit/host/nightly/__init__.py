"""Run a suite every night, and report what is new.

It starts captures as child processes and must not import ``pipeline``.
"""
