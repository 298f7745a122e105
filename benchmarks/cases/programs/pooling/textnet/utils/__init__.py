from .masks import as_mask
from .pool import masked_max, masked_mean, pool
