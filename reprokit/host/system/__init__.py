"""The operating system: files, processes, signals, the guardian.

It knows nothing of torch or of a run, and must not import the other packages of the host.
"""
