"""Where the jobs of a night run: on this machine or on a Slurm cluster.

It imports ``schedule`` and ``jobs``; it must not import the ledger.
"""
