"""Distances in a hyperbolic plane: compiled code gives inf for large ones (pytorch#183768)."""

import torch


def distance(a, b, angle):
    flat = torch.cosh(a) * torch.cosh(b)
    turned = torch.sinh(a) * torch.sinh(b) * torch.cos(angle)
    return torch.acosh(flat - turned)


def distances(distance):
    radii = torch.tensor([1.0, 5.0, 25.0, 30.0])
    return distance(radii, radii, torch.full((4,), 2.0))


def main():
    print("distances:", distances(torch.compile(distance)).tolist())


if __name__ == "__main__":
    main()
