"""The probe server: one process with torch imported, which forks a child for each probe.

The other packages of the agent must not import it.
"""
