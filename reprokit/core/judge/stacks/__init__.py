"""Read stacks and messages: which frames name a bug, which phase they are in, which process
matters.

It decides no verdict, and must not import the other packages of ``core.judge``.
"""
