"""The report of one run, as data, Markdown, an HTML page and files for other viewers.

This package imports ``run`` and ``watch``, and must not import ``pack``.
"""
