"""Read stacks and messages: the frames that identify a bug, their phase, and the process to look
at.

The package decides no verdict. It must not import the other packages of ``core.judge``.
"""
