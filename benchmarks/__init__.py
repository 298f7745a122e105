"""Measurements of reprokit, their recorded results, and the tables of docs/benchmarks.md.

``python -m benchmarks`` lists the measurements. The package is for developers: reprokit does not
import it.
"""
