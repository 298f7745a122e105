"""Everything outside the watched process: run, watch, end, judge, minimize, pack.

It must not import torch, the agent, click or rich.
"""
