"""Run programs of strangers in a jail: that of an issue, with a draft of a maintainer's comment,
and those of files that torch wrote about a run.

Must not import: nightly, the command line, torch.
"""
