"""The rules that turn an observation into a verdict and a signature.

The package imports ``core.records`` and ``core.shared``. It must not import reduction, redaction or
triage.
"""
