from .loader import Plugins
from .spec import parse_spec
