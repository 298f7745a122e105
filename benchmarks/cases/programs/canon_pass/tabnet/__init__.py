from .net import ResidualTabular
from .passes import install
