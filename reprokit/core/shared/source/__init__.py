"""Program text that the host and the agent write: tensors, process groups, Triton kernels.

It imports only the standard library.
"""
