"""The command line: the only package that prints and exits.

It imports the host; nothing imports it.
"""
