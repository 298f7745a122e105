"""Parts of several commands: options, output, consent.

It must not import a command.
"""
