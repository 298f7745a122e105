from .attention import Config, Model
