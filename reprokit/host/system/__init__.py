"""Operating system services: files, processes, signals, the guardian.

This package knows nothing about torch or runs, and must not import the other packages of the host.
"""
