"""The rules that find private text, and their tables. To support a new format, add a row.

The package must not import the redactor.
"""
