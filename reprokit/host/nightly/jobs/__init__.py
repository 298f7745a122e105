"""One job of a nightly run: its spec, its execution and its result, checked by a schema.

It must not import the ledger or an engine.
"""
