"""Measurements of reprokit with different versions of torch."""
