"""Run the program of an issue in a jail, and draft what a maintainer would write about it.

Must not import: nightly, the command line, torch.
"""
