"""The catalogue of known failures: reads and writes its entries.

It must not import nightly.
"""
