from .attention import SelfAttention
from .conv import ConvModule
from .local import LocalMixer

LAYERS = {"A": SelfAttention, "C": ConvModule, "L": LocalMixer}
