"""Write down what happens in this process: the journal, graphs, kernels, settings, exceptions.

It changes nothing of torch, and must not import the other packages of the agent.
"""
