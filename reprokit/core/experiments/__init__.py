"""Questions beyond the first run, and how their answers are read: ablation, remedies, bisection.

It runs nothing; it must not import redaction, growth or triage.
"""
