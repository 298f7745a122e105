"""The JSON documents that commands print with ``--json``, as types, and their JSON Schema.

It must not import a command, and it prints nothing.
"""
