"""Turn a failing, hanging or silently wrong ``torch.compile`` run into a reproduction pack."""

__version__ = "0.2.0"
