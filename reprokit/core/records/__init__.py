"""What a run left, as frozen dataclasses; ``observation`` has all of them together.

It judges nothing, and imports only ``core.shared``.
"""
