"""The format of all data that the host and the agent exchange.

It imports only the standard library.
"""
