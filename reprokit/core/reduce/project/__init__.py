"""Whole programs: their files as one text, their command line, and what they read from outside.

It must not import the passes or the recorded graphs.
"""
