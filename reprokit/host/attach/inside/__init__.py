"""Run a program of ours inside a Python process that runs already, between two of its bytecodes.

It imports run, watch and system. It must not import observe.
"""
