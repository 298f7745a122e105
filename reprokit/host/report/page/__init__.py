"""The report as an HTML page: its figures, colours, style sheet and script.

This package must not import ``run`` and ``watch``: a page is made from the data of the report.
"""
