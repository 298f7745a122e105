"""The experiments after the first run, and the evaluation of their results: ablation, remedies,
bisection.

The package runs no program. It must not import redaction, growth or triage.
"""
