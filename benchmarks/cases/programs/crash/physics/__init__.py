from .energy import *
