"""Whole models: what builds, what compiles, and what larger or simulated ones cost."""
