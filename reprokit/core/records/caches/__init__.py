"""The stages of a comparison of caches, and which entries each stage looked up.

It imports only ``core.shared``.
"""
