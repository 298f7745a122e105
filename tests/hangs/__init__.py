"""Constructed hangs, for tests and for the measurement ``hangs``."""
