"""How the cost of a compile grows with a size.

It imports ``core.judge.stacks``; it must not import experiments or triage.
"""
