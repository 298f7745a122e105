"""Write a failure down at its moment, in a process that reprokit did not start.

Only the installed reprokit uses it, and no capture does. It must not import the rest of the agent
except ``record``, ``results`` and ``torch_hooks``.
"""
