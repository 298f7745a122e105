"""What the text of an issue says: its program, how to run it, and the failure that it reports; and
what torch wrote about a run, with programs of its graphs.

Must not import: the standard library's files and processes. Nothing here runs a program.
"""
