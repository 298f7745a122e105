"""Code that the host and the agent both need.

Only this part of ``core`` is copied into the run directory. It imports only the standard library
and itself. Its imports are relative, because the copy has a different name.
"""
