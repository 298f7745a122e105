"""Rules without input or output: records, verdicts, signatures, reduction, redaction.

It imports only the standard library. It does not read files or clocks.
"""
