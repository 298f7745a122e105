"""Measurements of reprokit, their recorded results, and the tables of the documentation.

``python -m benchmarks`` lists the measurements. The package is for developers: reprokit does not
import it.
"""
