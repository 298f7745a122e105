"""From an observation to a verdict and a signature.

It imports ``core.records`` and ``core.shared``; it must not import reduction, redaction or triage.
"""
