"""The records of a run, as frozen dataclasses; ``observation`` holds all of them.

The package contains no judgement. It imports only ``core.shared``.
"""
