import torch

import physics

strain = torch.load("strain.pt")
for row in strain:
    print(torch.compile(physics.hessian_of(physics.energy))(row).norm())
