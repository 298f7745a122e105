"""The probe server: one process with torch imported, which forks a child for each probe.

Nothing else of the agent imports it.
"""
