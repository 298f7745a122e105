"""Observe a process that reprokit did not start: find it, read its state, describe it.

It imports run, request, watch and system. It never signals or stops the process, except where the
user asks for it.
"""
