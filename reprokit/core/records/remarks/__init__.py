"""What torch says about a run that goes on: warnings of the compiler, and skipped CUDA graphs.

It imports only ``core.shared``.
"""
