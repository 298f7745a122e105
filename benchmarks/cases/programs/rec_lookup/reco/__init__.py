from .events import EventReader
from .model import TwoTower
