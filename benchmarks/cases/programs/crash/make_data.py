"""Make the data of the program."""

import torch

torch.save(torch.arange(1, 19, dtype=torch.float64).reshape(2, 3, 3) / 10, "strain.pt")
