import torch


class Histogram:
    def __init__(self, bins):
        self.bins = bins

    def __call__(self, values):
        return torch.bincount(values.flatten(), minlength=self.bins)
