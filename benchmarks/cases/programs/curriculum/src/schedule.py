import math

from .state import RUN


def anneal(start, end):
    """Cosine from start to end over the run."""
    return end + (start - end) * (1 + math.cos(math.pi * RUN.progress)) / 2
