"""Plan the jobs of a nightly run, and collect their results.

It imports the ledger; it must not import ``engines``.
"""
