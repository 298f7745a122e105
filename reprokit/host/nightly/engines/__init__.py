"""The engines that run the jobs of a nightly run: this machine or a Slurm cluster.

It imports ``schedule`` and ``jobs``; it must not import the ledger.
"""
