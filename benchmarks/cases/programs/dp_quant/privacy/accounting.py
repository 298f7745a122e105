import math


class GaussianAccountant:
    """Zero-concentrated privacy of repeated Gaussian mechanisms."""

    def __init__(self, noise_multiplier):
        self.noise_multiplier = noise_multiplier
        self.rho = 0.0

    def step(self):
        self.rho += 1 / (2 * self.noise_multiplier**2)

    def epsilon(self, delta):
        return self.rho + 2 * math.sqrt(self.rho * math.log(1 / delta))
