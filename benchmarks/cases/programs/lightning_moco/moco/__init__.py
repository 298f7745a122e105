from .module import MoCo
from .datamodule import TwoViews

__all__ = ["MoCo", "TwoViews"]
