"""Plan the jobs of a night, and collect their results.

It imports the ledger; it must not import ``engines``.
"""
