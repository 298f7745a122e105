"""What is recorded of the values of a graph: metadata, and a description of the inputs' elements.

It must not import the graphs themselves.
"""
