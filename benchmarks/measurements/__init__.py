"""One module for each measurement, in a package for each topic.

A module has a docstring, whose first line ``python -m benchmarks`` prints, and ``MEASUREMENT``,
which ``python -m benchmarks run NAME`` runs. Measurements do not import each other's rows: what two
of them need is in ``benchmarks.harness``.
"""
