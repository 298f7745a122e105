from .config import load_config
from .registry import MODELS, register
from . import model  # noqa: F401  (fills the registry)

__all__ = ["MODELS", "load_config", "register"]
