from .decimate import decimate
from .envelope import envelope
