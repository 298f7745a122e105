"""Rules without input or output: records, verdicts, signatures, reduction, redaction.

It imports only the standard library, and neither a file nor a clock.
"""
