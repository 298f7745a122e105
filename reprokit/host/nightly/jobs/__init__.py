"""One job of a night: what it is asked, what it runs, and what it leaves, checked by a schema.

It must not import the ledger or an engine.
"""
