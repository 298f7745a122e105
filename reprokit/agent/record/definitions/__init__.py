"""Write the definitions of the user's own functions, classes, kernels and operators as Python text.

A definition is the source text with the helpers and constants that it uses. Like
the package above, it must not import the other packages of the agent.
"""
