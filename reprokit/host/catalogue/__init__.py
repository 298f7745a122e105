"""The catalogue of known failures: reads its entries, and proves them.

It must not import nightly.
"""
