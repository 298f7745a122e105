"""The evidence of a run in the formats of other viewers: speedscope and Perfetto.

This package must not import ``page``, and it redacts nothing: its callers do.
"""
