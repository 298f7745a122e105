from .augment import Augmenter, build_augment
from .data import CropDataset
from .engine import Engine, History
