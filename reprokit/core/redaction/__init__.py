"""Hide private text: the redactor applies the rules of ``rules`` to a text.

It imports only the standard library.
"""
