"""Helpers that several tests use: calls of reprokit, environments, processes, made-up data."""
