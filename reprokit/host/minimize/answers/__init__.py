"""Whether a program shows the failure: the oracle, its probes ahead on other cores, and its file.

It must not import the search that asks.
"""
