"""Exceptions whose message is one line for the user: what is wrong and what to do."""

from __future__ import annotations


class BadInput(Exception):
    """The input of the user cannot be used; the message is one line: what is wrong and what to
    do.
    """

    code = "bad-input"
    """A stable word for programs, in the errors of ``--json``."""


class BadTarget(Exception):
    """The target cannot be used; the message is one line for the user."""


class NoSuchTarget(BadTarget):
    """No target has this name; none of its code was run."""
