"""What several commands need: options, output, consent.

It must not import a command.
"""
