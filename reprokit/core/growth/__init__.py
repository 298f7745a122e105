"""Measure how the cost of a compile grows with a size, and what grows with each call.

The package imports ``core.judge.stacks``. It must not import experiments or triage.
"""
