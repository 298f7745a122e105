from .base import build_loss
from . import contrastive, regularise  # noqa: F401
