"""Writes val.npz: images with discs and their masks (255 = void border)."""
import pathlib
import numpy as np

rng = np.random.default_rng(11)
n, s = 8, 64
x = rng.integers(0, 60, (n, s, s, 3), dtype=np.uint8)
y = np.zeros((n, s, s), np.uint8)
yy, xx = np.mgrid[:s, :s]
for i in range(n):
    for c in (1, 2):
        cy, cx, r = rng.integers(15, s - 15, 2).tolist() + [int(rng.integers(6, 14))]
        d = np.hypot(yy - cy, xx - cx)
        x[i][d < r] = (60 + 80 * c, 200 - 60 * c, 90)
        y[i][d < r] = c
        y[i][(d >= r) & (d < r + 1.5)] = 255
np.savez(pathlib.Path(__file__).parent / "shapes.npz", x=x, y=y)
