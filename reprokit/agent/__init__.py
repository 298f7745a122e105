"""Everything that runs inside a watched process: standard library and torch only.

The host copies ``core`` and ``agent`` into a private folder under the name ``_reprokit`` and puts
that folder alone on the target's path, so imports in here are relative.
"""
