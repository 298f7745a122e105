"""The code that runs inside a watched process. It imports only the standard library and torch.

The host copies it and ``core.shared`` to a folder under the name ``_reprokit``, and adds the folder
to the target's path. Imports of its own code are therefore relative.
"""
