from .accounting import GaussianAccountant
from .clip import PerSampleClipper

__all__ = ["GaussianAccountant", "PerSampleClipper"]
