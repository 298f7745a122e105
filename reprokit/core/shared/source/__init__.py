"""Program text that both sides write: tensors, process groups, Triton kernels.

It imports only the standard library.
"""
