from .model import WindowNet
