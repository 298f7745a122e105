"""Rules about the results of many nightly runs: whether two failures are the same bug, whether a
bug is new or fixed, and whether a compile is slower than noise explains.

The package reads no ledger. It must not import experiments or growth.
"""
