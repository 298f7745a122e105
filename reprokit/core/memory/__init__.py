"""How much memory a compiled program needs at its peak, and which tensors need it.

It imports records and the contract only.
"""
