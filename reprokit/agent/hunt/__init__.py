"""Writes programs from a seed, and judges each of them: compiled against eager.

It imports the rest of the agent, and runs in children of the probe server.
"""
