"""Record what happens in this process: journal, graphs, kernels, settings, exceptions.

It does not change torch. It must not import the other packages of the agent.
"""
