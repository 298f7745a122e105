"""Read a suite file into cells.

It must not import the other packages of ``nightly``.
"""
