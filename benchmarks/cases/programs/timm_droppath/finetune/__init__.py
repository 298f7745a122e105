from .data import build_loader
from .model import build_model, param_groups
from .schedule import DropPathSchedule, cosine_lr
