"""The report of one run, as data, HTML, SVG and Markdown.

It imports ``run`` and ``watch``; it must not import ``pack``.
"""
