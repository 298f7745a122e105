"""The report of one run, as data, HTML, SVG and Markdown.

This package imports ``run`` and ``watch``, and must not import ``pack``.
"""
