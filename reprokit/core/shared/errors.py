"""Exceptions whose message is one line for the user: what was wrong and what to do."""

from __future__ import annotations


class BadInput(Exception):
    """The user asked for something that cannot be done; the message is one line: what and what to
    do.
    """


class BadTarget(Exception):
    """The target cannot be used; the message is one line for the person who named it."""


class NoSuchTarget(BadTarget):
    """The target's name names nothing; none of its code was run."""
