"""The rules that find private text, and their tables; a new format is a row.

It must not import the redactor.
"""
