"""The only place that prints, exits or talks to people.

It imports the host; nothing imports it.
"""
