"""reprokit inside other tools: a pytest plugin, a cell magic, notebooks, a summary for CI jobs,
a server for agents.

Each module is loaded by another program, so it starts ``reprokit`` as a child process. It must not
import torch, the agent or the command line, and of the host only how a duration is written.
"""
