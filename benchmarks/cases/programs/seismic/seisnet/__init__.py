from .config import Settings
from .picker import Picker

__version__ = "0.3.1"
