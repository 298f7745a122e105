"""What the host and the agent both need; it is copied next to the target, and nothing else of
``core`` is.

It imports only the standard library and itself, by relative imports: the copy has a different name.
"""
