"""The format of all that the host and the agent write to each other.

It imports only the standard library.
"""
