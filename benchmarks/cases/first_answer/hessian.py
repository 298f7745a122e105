"""A second derivative: the compiled kernel reads address 0 (pytorch#190856)."""

import torch


def energy(strain):
    size = torch.trace(strain) * torch.eye(3, dtype=strain.dtype)
    return torch.mean(1.0 / (strain + size))


def main():
    stiffness = torch.compile(torch.func.jacfwd(torch.func.jacfwd(energy)))
    for scale in (0.1, 0.2):
        strain = torch.arange(1, 10, dtype=torch.float64).reshape(3, 3) * scale
        print("norm:", stiffness(strain).norm().item(), flush=True)


if __name__ == "__main__":
    main()
